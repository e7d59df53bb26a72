// Package client is the root of the generated clients for the types in pkg/apis: clientset/versioned talks to an API
// server, informers/externalversions keeps a cache of objects up to date, listers reads that cache. They work like
// those of k8s.io/client-go:
//
//	clients, err := versioned.NewForConfig(config)
//	works, err := clients.WorkV1().ManifestWorks("cluster1").List(ctx, metav1.ListOptions{})
//
//	factory := externalversions.NewSharedInformerFactory(clients, 0)
//	lister := factory.Work().V1().ManifestWorks().Lister()
//	factory.Start(ctx.Done())
//	factory.WaitForCacheSync(ctx.Done())
//	work, err := lister.ManifestWorks("cluster1").Get("hello") // shared: copy before changing it
//
// Everything below is made by hack/generate.sh. All of it is safe for concurrent use.
package client
