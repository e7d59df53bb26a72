package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Objects reads and writes the objects of one resource in one namespace. Each of its methods is that of client-go's typed
// clients, which register every type of Kubernetes: 12 MB of a program that needs one. It is safe for concurrent use.
type Objects[T, L runtime.Object] struct {
	client              rest.Interface
	namespace, resource string
	object              func() T
	list                func() L
}

// NewObjects returns the client of a resource. object and list return empty objects of its types. It does no I/O.
func NewObjects[T, L runtime.Object](config *rest.Config, resource schema.GroupVersionResource, namespace string, object func() T, list func() L) (*Objects[T, L], error) {
	version, scheme := resource.GroupVersion(), runtime.NewScheme()
	scheme.AddKnownTypes(version, object(), list())
	metav1.AddToGroupVersion(scheme, version)
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &version, "/apis"
	if version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Objects[T, L]{client: client, namespace: namespace, resource: resource.Resource, object: object, list: list}, nil
}

// Get reads an object.
func (o *Objects[T, L]) Get(ctx context.Context, name string, options metav1.GetOptions) (T, error) {
	return o.one(ctx, o.request("GET", &options).Name(name))
}

// Create creates an object.
func (o *Objects[T, L]) Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error) {
	return o.one(ctx, o.request("POST", &options).Body(object))
}

// Update replaces an object.
func (o *Objects[T, L]) Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error) {
	request := o.request("PUT", &options)
	if named, ok := any(object).(metav1.Object); ok {
		request = request.Name(named.GetName())
	}
	return o.one(ctx, request.Body(object))
}

// List reads all objects that options select.
func (o *Objects[T, L]) List(ctx context.Context, options metav1.ListOptions) (L, error) {
	result := o.list()
	return result, o.request("GET", &options).Do(ctx).Into(result)
}

// Watch follows the objects that options select.
func (o *Objects[T, L]) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return o.request("GET", &options).Watch(ctx)
}

func (o *Objects[T, L]) request(verb string, options runtime.Object) *rest.Request {
	return o.client.Verb(verb).Namespace(o.namespace).Resource(o.resource).VersionedParams(options, metav1.ParameterCodec)
}

func (o *Objects[T, L]) one(ctx context.Context, request *rest.Request) (T, error) {
	result := o.object()
	return result, request.Do(ctx).Into(result)
}
