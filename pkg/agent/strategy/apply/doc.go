// Package apply makes the cluster hold what the manifests of a work declare: it carries
// out what package plan decides.
//
// [Applier.Apply] takes each manifest from step to step until nothing is left to do, and
// returns one [Outcome] for each, also for those that failed. [Applier.Remove] does the
// same for objects that have to be removed. A new object costs one POST, which carries
// label, annotation and owner reference; a known object that holds what its manifest
// declares costs no request.
//
//	manifests := strategy.Parse(&work.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
//		return mapper.RESTMapping(ctx, kind)
//	})
//	applier, err := apply.New(apply.Config{Client: client, Cache: objects, AgentHash: object.AgentHash(id)})
//	outcomes := applier.Apply(ctx, manifests, apply.Options{Owner: owner, Previous: lastApplied})
package apply
