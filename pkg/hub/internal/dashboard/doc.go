// Package dashboard serves read-only pages about the fleet: clusters, works, replica sets, and what
// changes.
//
//	d, err := dashboard.New(dashboard.Config{Options: options, REST: config, Works: works, ...})
//	...
//	err = d.Run(ctx)
//
// The pages show what the hub's informers hold, also on a replica that stands by. A change costs O(1):
// it is counted, and noted in a feed of the last ones. What a page sums up over all works is computed
// when somebody looks, at most once a second (see snapshot).
//
// A viewer presents a bearer token of the hub's API, in the Authorization header or once at the login
// form, and sees the clusters in whose namespaces it may list ManifestWorks. The API server decides
// both: TokenReview and SubjectAccessReview, remembered for seconds.
//
// The pages are HTML from templates. They work without JavaScript; with it, filters apply while one
// types, and pages follow changes: the server sends an event that something has changed, and the page
// fetches itself again.
package dashboard
