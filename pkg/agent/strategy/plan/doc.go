// Package plan decides how the cluster comes to hold what a manifest declares. It is
// pure: it has no client, and package apply carries its decisions out.
//
// [Next] compares a manifest with the live object, as far as it is known, and returns the
// next [Step]: nothing, a read or one write. [Recover] decides what follows a write that
// failed. [NextRemoval] is the counterpart for objects that have to be removed.
//
// # Update
//
// Every kind is treated alike, as JSON. Each field that the manifest declares gets its
// value: objects field by field, lists item by item and in length. Undeclared fields are
// left to the API server and to other actors. A field that an earlier version of the
// manifest declared, and this one does not, is removed unless another field manager owns
// it; the API server sets its default. Where the API server stores another value than the
// declared one (a default, a normalized quantity, a mutating webhook), its answer to the
// write says so, and that value is not treated as drift.
//
// Labels and annotations of others stay. So do those that the manifest no longer has; a
// key that ends in "-" removes the key without it. Finalizers are set on creation only.
// The status of an existing object is never written. Package fields names the few kinds
// that have rules of their own.
//
// # Server-side apply
//
// The API server merges. Fields that Update wrote before are migrated first, so that they
// neither conflict nor stay behind. With ignoreFields an object is applied only when its
// manifest changes; ignored fields then keep their values.
//
// # Deletion
//
// No object is deleted and created again, unless the manifest's annotation allows it and
// the API server refuses an update because fields are immutable.
package plan
