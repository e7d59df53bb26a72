package works

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var kind = workv1.GroupVersion.WithKind("ManifestWork")

// served is what serves works: where they are kept, and how they are read and written.
type served struct {
	works              *genericregistry.Store
	status             *statusStore
	scope, statusScope handlers.RequestScope
}

// statusStore writes the statuses of works.
type statusStore struct{ *genericregistry.Store }

// Update changes the status of a work that is there: a subresource makes no object, not even when it is applied.
func (s *statusStore) Update(ctx context.Context, name string, object rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.Store.Update(ctx, name, object, create, update, false, options)
}

func serve(known *apiextensionsv1.CustomResourceDefinition, config apiserver.CompletedConfig) (served, error) {
	version := known.Spec.Versions[0]
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		return served{}, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddTypeDefaultingFunc(&workv1.ManifestWork{}, func(object any) { setDefaults(object.(*workv1.ManifestWork)) })
	codecs := serializer.NewCodecFactory(scheme, serializer.WithStreamingCollectionEncodingToJSON())

	rules, err := newRules(scheme, version)
	if err != nil {
		return served{}, err
	}
	columns, err := tableconvertor.New(version.AdditionalPrinterColumns)
	if err != nil {
		return served{}, err
	}
	written, reported := strategy{ObjectTyper: scheme, rules: rules}, statusStrategy{strategy{ObjectTyper: scheme, rules: rules}}
	works := &genericregistry.Store{
		NewFunc:     func() runtime.Object { return &workv1.ManifestWork{} },
		NewListFunc: func() runtime.Object { return &workv1.ManifestWorkList{} },
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
		DefaultQualifiedResource:  workv1.Resource(resource),
		SingularQualifiedResource: workv1.Resource("manifestwork"),
		CreateStrategy:            written,
		UpdateStrategy:            written,
		DeleteStrategy:            written,
		ResetFieldsStrategy:       written,
		TableConvertor:            columns,
	}
	text := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{})
	stored := codecs.CodecForVersions(text, codecs.UniversalDeserializer(), workv1.GroupVersion, workv1.GroupVersion)
	if err := works.CompleteWithOptions(&generic.StoreOptions{RESTOptions: withCodec{config.ExtraConfig.CRDRESTOptionsGetter, stored}, AttrFunc: attributes}); err != nil {
		return served{}, err
	}
	statuses := *works
	statuses.UpdateStrategy, statuses.ResetFieldsStrategy = reported, reported

	s := served{works: works, status: &statusStore{&statuses}}
	s.scope = scopeOf(scheme, codecs, config, columns)
	s.statusScope = s.scope
	s.statusScope.Subresource = "status"
	return s, s.manageFields(known, scheme, written, reported)
}

// scopeOf returns how requests and answers are read and written.
func scopeOf(scheme *runtime.Scheme, codecs serializer.CodecFactory, config apiserver.CompletedConfig, columns rest.TableConvertor) handlers.RequestScope {
	resources := runtime.NewEquivalentResourceRegistry()
	works := workv1.GroupVersion.WithResource(resource)
	resources.RegisterKindFor(works, "", kind)
	resources.RegisterKindFor(works, "status", kind)
	scope := handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor()},
		Serializer:               codecs,
		ParameterCodec:           runtime.NewParameterCodec(scheme),
		Creater:                  scheme,
		Convertor:                scheme,
		Defaulter:                scheme,
		Typer:                    scheme,
		UnsafeConvertor:          runtime.UnsafeObjectConvertor(scheme),
		Authorizer:               config.GenericConfig.Authorization.Authorizer,
		EquivalentResourceMapper: resources,
		TableConvertor:           columns,
		Resource:                 works,
		Kind:                     kind,
		HubGroupVersion:          workv1.GroupVersion,
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      config.GenericConfig.MaxRequestBodyBytes,
	}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf { // these types are not in protobuf, only what the API server makes of them
			scope.StandardSerializers = append(scope.StandardSerializers, info)
		}
	}
	return scope
}

// manageFields sets who keeps account, in both scopes, of who owns which field.
func (s *served) manageFields(known *apiextensionsv1.CustomResourceDefinition, scheme *runtime.Scheme, written, reported rest.ResetFieldsStrategy) error {
	models, err := builder.BuildOpenAPIV3(known, workv1.GroupVersion.Version, builder.Options{})
	if err != nil {
		return err
	}
	converter, err := managedfields.NewTypeConverter(models.Components.Schemas, false)
	if err != nil {
		return err
	}
	for scope, strategy := range map[*handlers.RequestScope]rest.ResetFieldsStrategy{&s.scope: written, &s.statusScope: reported} {
		if scope.FieldManager, err = managedfields.NewDefaultFieldManager(byMaps{converter}, scheme, scheme, scheme, kind, workv1.GroupVersion,
			scope.Subresource, fieldpath.NewExcludeFilterSetMap(strategy.GetResetFields())); err != nil {
			return err
		}
	}
	return nil
}

// byMaps converts works to typed values by way of maps. By way of the type, their manifests would be parsed again by each step, and
// a map be made for each manager of fields.
type byMaps struct{ managedfields.TypeConverter }

// ObjectToTyped returns a work as those who keep account of fields take it.
func (c byMaps) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("reading a work: %w", err)
	}
	return c.TypeConverter.ObjectToTyped(&unstructured.Unstructured{Object: content}, options...)
}

// withCodec stores custom resources as another codec writes them.
type withCodec struct {
	generic.RESTOptionsGetter
	codec runtime.Codec
}

// GetRESTOptions returns the options of a custom resource with the codec.
func (w withCodec) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := w.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil {
		options.StorageConfig.Codec = w.codec
	}
	return options, err
}

func attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, nil, err
	}
	return accessor.GetLabels(), fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}, nil
}
