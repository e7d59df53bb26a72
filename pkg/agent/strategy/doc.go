// Package strategy makes the cluster hold what the manifests of a work declare:
// it decides, then does.
//
// Deciding is pure. [Parse] reads a spec into one [Manifest] each; [Ranks] puts
// them in order; [Plan] compares a manifest with the live object as far as it is
// known and gives the next [Step]: nothing, a read, or one write. An [Applier]
// carries steps out until nothing is left to do and reports one [Outcome] per
// manifest, also for those that failed. [DecideRemoval] and [Applier.Remove] are
// the same pair for objects that have to go.
//
// A new object costs one POST, which carries label, annotation and owner
// reference; a known object that holds what its manifest declares costs nothing.
//
//	manifests := strategy.Parse(&work.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
//		return mapper.RESTMapping(ctx, kind)
//	})
//	applier := strategy.New(strategy.Config{Client: client, Cache: objects, AgentHash: object.AgentHash(id)})
//	outcomes := applier.Apply(ctx, manifests, strategy.Pass{Owner: owner, Previous: lastApplied})
//
// # What Update means
//
// Every kind is treated alike, as the JSON that it is. Each field that the
// manifest declares has its value in the cluster: objects field by field, lists
// item by item and in length. Fields that it does not declare are left to the
// API server and to other actors. A field that an earlier version of the manifest
// declared, and this one does not, is dropped, unless another field manager owns
// it by now; the API server gives it its default. Where the declared value is one
// that the API server itself turns into another (a default, a normalised
// quantity, the work of a mutating webhook), its own answer to our write says so,
// and that value is no drift.
//
// Labels and annotations of others stay; one that the manifest no longer has
// stays too, and a key that ends in "-" removes the key without it. Finalizers
// are set on creation only. The status is never written to an existing object.
// The kinds that need more than this are named in quirks.go.
//
// # What server-side apply means
//
// Merging is the API server's. What Update wrote before is taken over first, so that
// it neither conflicts nor stays behind. With ignoreFields an object is applied only
// when its manifest changes; fields that are to be left alone then keep the values
// they have.
//
// # What is not done
//
// No object is deleted and created anew, unless the manifest's annotation allows it
// and the API server refuses an update because fields are immutable.
package strategy
