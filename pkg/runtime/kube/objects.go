package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// object is an object of an API.
type object interface {
	runtime.Object
	metav1.Object
}

// NewObjects returns the client of the objects of one resource in one namespace. It is one of client-go's typed clients without
// their clientset, which registers every type of Kubernetes: 12 MB of a program that needs one. one and list return empty objects
// of its types. It does no I/O.
func NewObjects[T object, L runtime.Object](config *rest.Config, resource schema.GroupVersionResource, namespace string, one func() T, list func() L) (*gentype.ClientWithList[T, L], error) {
	version, scheme := resource.GroupVersion(), runtime.NewScheme()
	scheme.AddKnownTypes(version, one(), list())
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
	return gentype.NewClientWithList(resource.Resource, client, metav1.ParameterCodec, namespace, one, list), nil
}
