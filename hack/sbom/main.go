// Command sbom prints the software bill of materials of a Go binary: a CycloneDX document with the
// modules that the go command recorded in the binary. It needs no network, and its output depends
// on its arguments only. hack/sbom.sh runs it.
//
//	hack/sbom.sh bin/work-agent v1.2.3 > work-agent.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(newDocument(filepath.Base(binary), version, info))
}

// The fields of CycloneDX 1.6 that are used.
type (
	document struct {
		Format      string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    metadata    `json:"metadata"`
		Components  []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl"`
		Hashes  []hash `json:"hashes,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
)

// newDocument returns the document of the binary called name. version is the version of the
// program, which info does not have.
func newDocument(name, version string, info *debug.BuildInfo) document {
	main := purl(info.Path, version)
	doc := document{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:   metadata{component{Type: "application", Ref: main, Name: name, Version: version, PURL: main}},
		Components: []component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")},
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		doc.Components = append(doc.Components, library(module.Path, module.Version, module.Sum))
	}
	return doc
}

// library returns the component of a module. sum is the checksum in go.sum; only h1, a SHA-256 in
// base64, is supported.
func library(module, version, sum string) component {
	id := purl(module, version)
	c := component{Type: "library", Ref: id, Name: module, Version: version, PURL: id}
	if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
		if digest, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = []hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(digest)}}
		}
	}
	return c
}

// purl returns the package URL of a Go module.
func purl(module, version string) string {
	return "pkg:golang/" + path.Clean(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
