// Package examples embeds the YAML files of the documentation, for the demo and for the tests that
// apply them. docs/features.md lists what each of them shows.
package examples

import "embed"

// Files are the example manifests, by path in this directory. The folders of programs are left out.
//
//go:embed *.yaml completion/*.yaml delete-options/*.yaml executor/*.yaml feedback/*.yaml field-manager/*.yaml
//go:embed ignore-fields/*.yaml immutable-fields/*.yaml manifestwork/*.yaml permissions/*.yaml replicaset/*.yaml
//go:embed order/*.yaml resource-race/*.yaml
var Files embed.FS
