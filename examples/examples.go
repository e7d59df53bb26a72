// Package examples embeds the YAML files of the documentation, for the demo and for the tests that
// apply them. docs/features.md lists what each of them shows.
package examples

import "embed"

// Files are the example manifests, by path in this directory.
//
//go:embed *.yaml */*.yaml
var Files embed.FS
