// Package restmapper maps the kinds that manifests name to the resources that
// serve them on the agent's cluster.
//
// Built-in and aggregated kinds are looked up by discovery of a single group and
// version, and cached. Kinds of CustomResourceDefinitions come from a watch and are
// mapped as soon as they are established: discovery documents lag behind by
// seconds. The watch also reports when a kind appears or disappears, so that works
// that wait for it are retried at once.
//
// It does not use client-go's restmapper package, which fetches the whole discovery
// document on each miss and cannot follow CustomResourceDefinitions.
//
//	mapper := restmapper.New(restmapper.Config{Client: client, Changed: retry, Logger: logger})
//	go mapper.Run(ctx)
//	mapping, err := mapper.RESTMapping(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
//	// mapping.Resource is apps/v1, deployments; mapping.Scope is meta.RESTScopeNamespace
package restmapper
