// Package examples embeds the YAML files that the documentation uses, for the
// demo and for the tests that apply them.
package examples

import "embed"

// Files are the example manifests, by file name.
//
//go:embed *.yaml
var Files embed.FS
