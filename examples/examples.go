// Package examples embeds the YAML files that the documentation uses, for the
// demo and for the tests that apply them. docs/features.md says what each of them
// shows.
package examples

import "embed"

// Files are the example manifests, by path within this folder.
//
//go:embed *.yaml */*.yaml
var Files embed.FS
