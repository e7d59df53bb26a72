package hubapi

import (
	"fmt"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/kubernetes"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	generic "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"

	"github.com/workwire/workwire/controlplane/internal/works"
	"github.com/workwire/workwire/deploy/crds"
)

// newChain returns the servers of the generic control plane, each of which passes on what it does not serve: services of others,
// Kubernetes' own APIs, ManifestWorks, and definitions. It is generic.CreateServerChain with the works between.
func newChain(config generic.CompletedConfig) (*aggregator.APIAggregator, error) {
	nothing := server.NewEmptyDelegateWithCustomHandler(notfoundhandler.New(config.ControlPlane.Generic.Serializer, filters.NoMuxAndDiscoveryIncompleteKey))
	definitions, err := config.APIExtensions.New(nothing)
	if err != nil {
		return nil, fmt.Errorf("definitions: %w", err)
	}
	native, err := config.ControlPlane.New("hub-apiserver", definitions.GenericAPIServer)
	if err != nil {
		return nil, fmt.Errorf("native APIs: %w", err)
	}
	client, err := kubernetes.NewForConfig(config.ControlPlane.Generic.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("native APIs: %w", err)
	}
	providers, err := config.ControlPlane.GenericStorageProviders(client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("native APIs: %w", err)
	}
	if err := native.InstallAPIs(providers...); err != nil {
		return nil, fmt.Errorf("native APIs: %w", err)
	}
	typed, err := works.New(crds.ManifestWork(), config.APIExtensions, definitions)
	if err != nil {
		return nil, err
	}
	native.GenericAPIServer.Handler.NonGoRestfulMux.HandlePrefix(works.Prefix, typed)
	return apiserver.CreateAggregatorServer(config.Aggregator, native.GenericAPIServer, definitions.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		true, apiserver.DefaultGenericAPIServicePriorities())
}
