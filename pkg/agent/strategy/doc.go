// Package strategy reads the manifests of a work and the options that its spec sets for
// them: update strategy, ignoreFields, ownership and rules. [Parse] returns one [Manifest]
// each; [Ranks] returns the order in which they are applied.
//
// The packages below it carry the update strategies out. Imports go one way:
//
//	apply      makes the requests
//	plan       decides: pure, without a client
//	strategy   manifests and options
//	ignore     ignoreFields of server-side apply
//	ownership  owner references and managedFields
//	fields     comparing and merging JSON
//
// Each imports only packages below it in this list.
package strategy
