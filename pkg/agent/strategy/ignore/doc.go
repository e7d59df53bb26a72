// Package ignore evaluates the ignoreFields of server-side apply: which fields of a
// manifest are not sent to an object that exists, and which values they keep there.
//
// Fields are named in three languages: JSONPath, of which the last part is the key to
// remove; JSON Pointer, RFC 6901; and jq, in which an expression selects paths. jq
// programs have no access to files, to the environment or to other input, and are
// stopped after a second.
package ignore
