// Package listwatch gives informers and reflectors what a client lists and watches. It is apart from package kube, so that
// programs without a cache do not compile client-go's in.
//
//	cache.NewSharedIndexInformer(listwatch.Of(client.CoreV1().Secrets(namespace), nil, nil), &corev1.Secret{}, 0, nil)
package listwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Client lists and watches one kind of objects, as typed and dynamic clients do.
type Client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Of returns what client lists and watches. restrict sets selectors, and noted gets the result of each request; both may be nil.
func Of[L runtime.Object](client Client[L], restrict func(*metav1.ListOptions), noted func(context.Context, error)) *cache.ListWatch {
	if restrict == nil {
		restrict = func(*metav1.ListOptions) {}
	}
	if noted == nil {
		noted = func(context.Context, error) {}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			restrict(&options)
			list, err := client.List(ctx, options)
			noted(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			restrict(&options)
			opened, err := client.Watch(ctx, options)
			noted(ctx, err)
			return opened, err
		},
	}
}
