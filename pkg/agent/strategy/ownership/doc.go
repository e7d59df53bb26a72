// Package ownership answers who owns an object and its fields: works, by owner
// references to their AppliedManifestWork, and field managers, by managedFields. It
// does no I/O.
package ownership
