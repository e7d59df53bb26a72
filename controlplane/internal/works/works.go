// Package works serves ManifestWorks from Go types, on an API server whose definition of them is the one that this program was
// built with. A write of a custom resource costs an API server several times what a write of a ConfigMap costs, most of it for the
// schema, by which each object is coerced and pruned whenever it is decoded: those of the client, of the data store, and of the watch.
// A Go type needs none of that.
//
// Where works are stored, and as what bytes, their discovery, OpenAPI and columns, what is valid, and admission are those of
// the definition: either way of serving reads what the other has written. Any other definition, such as one of another release,
// is served as API servers serve definitions.
//
//	handler, err := works.New(definition, config.APIExtensions, definitions)
//	mux.HandlePrefix(works.Prefix, handler)
package works

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const resource = "manifestworks"

// Prefix begins the paths of which a Handler serves some and passes on the others.
const Prefix = "/apis/" + workv1.GroupName + "/v1/"

// The forms of patches that custom resources take.
var patchTypes = []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}

// Handler serves ManifestWorks and passes on all other requests. It may be used by many goroutines.
type Handler struct {
	known       *apiextensionsv1.CustomResourceDefinition
	definitions listers.CustomResourceDefinitionLister
	next        http.Handler
	served      served
	admission   admission.Interface
	// minTimeout is how long a watch lasts at least that does not say it.
	minTimeout time.Duration
	// compared is the result for the definition that was there last.
	compared atomic.Pointer[comparison]
}

// comparison is what was found of a definition, nil for none. ended is closed when another one takes its place.
type comparison struct {
	with  *apiextensionsv1.CustomResourceDefinition
	same  bool
	ended chan struct{}
}

// New returns a handler in front of definitions, whose configuration is config, for works as known defines them. It fails if
// there is no data store, or the definition cannot be one of this program's types.
func New(known *apiextensionsv1.CustomResourceDefinition, config apiserver.CompletedConfig, definitions *apiserver.CustomResourceDefinitions) (*Handler, error) {
	served, err := serve(known, config)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", resource, err)
	}
	informer := definitions.Informers.Apiextensions().V1().CustomResourceDefinitions()
	h := &Handler{
		known:       known,
		definitions: informer.Lister(),
		next:        definitions.GenericAPIServer.UnprotectedHandler(),
		served:      served,
		admission:   config.GenericConfig.AdmissionControl,
		minTimeout:  time.Duration(config.GenericConfig.MinRequestTimeout) * time.Second,
	}
	h.compared.Store(&comparison{ended: make(chan struct{})})
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(any, any) { h.compare() }, DeleteFunc: func(any) { h.compare() },
	}); err != nil {
		return nil, fmt.Errorf("serving %s: %w", resource, err)
	}
	return h, nil
}

// ServeHTTP serves a request that has been authorized. A watch ends when the definition changes, as with whoever serves
// definitions: its events would lack what the new one has.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, found := request.RequestInfoFrom(r.Context())
	if !found || !info.IsResourceRequest || info.Resource != resource {
		h.next.ServeHTTP(w, r)
		return
	}
	definition, handle := h.compare(), h.handlerOf(info)
	if !definition.same || handle == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	if info.Verb == "watch" {
		ctx, end := context.WithCancel(r.Context())
		defer end()
		go func() {
			select {
			case <-definition.ended:
				end()
			case <-ctx.Done():
			}
		}()
		r = r.WithContext(ctx)
	}
	metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource,
		metrics.CleanScope(info), metrics.APIServerComponent, false, "", handle)(w, r)
}

// compare says whether works are defined, as this program knows them. A definition that is being deleted is not: whoever
// serves it refuses new objects, and deletes the others.
func (h *Handler) compare() *comparison {
	for {
		last := h.compared.Load()
		definition, err := h.definitions.Get(h.known.Name)
		if err != nil {
			definition = nil // there is none
		}
		if last.with == definition {
			return last
		}
		next := &comparison{with: definition, same: definition != nil && h.isKnown(definition), ended: make(chan struct{})}
		if h.compared.CompareAndSwap(last, next) {
			close(last.ended)
			return next
		}
	}
}

func (h *Handler) isKnown(definition *apiextensionsv1.CustomResourceDefinition) bool {
	return apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) &&
		!apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Terminating) &&
		definition.Spec.Scope == h.known.Spec.Scope &&
		apiequality.Semantic.DeepEqual(definition.Spec.Versions, h.known.Spec.Versions)
}

// handlerOf returns the handler of a request for works or their statuses, or nil for one that is for neither.
func (h *Handler) handlerOf(info *request.RequestInfo) http.HandlerFunc {
	if info.Namespace == "" && info.Verb != "list" && info.Verb != "watch" {
		return nil
	}
	works, scope := h.served.works, &h.served.scope
	objects := rest.Patcher(works)
	switch info.Subresource {
	case "":
	case "status":
		objects, scope = h.served.status, &h.served.statusScope
	default:
		return nil
	}
	switch info.Verb {
	case "get":
		return handlers.GetResource(objects, scope)
	case "update":
		return handlers.UpdateResource(objects, scope, h.admission)
	case "patch":
		return handlers.PatchResource(objects, scope, h.admission, patchTypes)
	}
	if info.Subresource != "" {
		return nil
	}
	switch info.Verb {
	case "list", "watch":
		return handlers.ListResource(works, works, scope, info.Verb == "watch", h.minTimeout)
	case "create":
		return handlers.CreateResource(works, scope, h.admission)
	case "delete":
		return handlers.DeleteResource(works, true, scope, h.admission)
	case "deletecollection":
		return handlers.DeleteCollection(works, true, scope, h.admission)
	}
	return nil
}
