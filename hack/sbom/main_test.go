package main

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewDocument(t *testing.T) {
	got := newDocument("work-agent", "v1.2.3", &debug.BuildInfo{
		GoVersion: "go1.26.1", Path: "example.org/w/cmd/work-agent",
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.org/b", Version: "v2.0.0+incompatible", Sum: "unknown:1"},
			{Path: "example.org/old", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/new", Version: "v3.0.0"}},
		},
	})
	main := "pkg:golang/example.org/w/cmd/work-agent@v1.2.3"
	lib := func(name, version, purl string, hashes ...hash) component {
		return component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl, Hashes: hashes}
	}
	want := document{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: metadata{component{Type: "application", Ref: main, Name: "work-agent", Version: "v1.2.3", PURL: main}},
		Components: []component{
			lib("std", "1.26.1", "pkg:golang/std@1.26.1"),
			lib("example.org/a", "v1.0.0", "pkg:golang/example.org/a@v1.0.0",
				hash{"SHA-256", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}),
			lib("example.org/b", "v2.0.0+incompatible", "pkg:golang/example.org/b@v2.0.0%2Bincompatible"),
			lib("example.org/new", "v3.0.0", "pkg:golang/example.org/new@v3.0.0"),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}
