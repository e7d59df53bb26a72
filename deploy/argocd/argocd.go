// Package argocd has what Argo CD needs to know the health of works (docs/conditions.md, Flux and Argo CD).
package argocd

import _ "embed"

// Health is the script that tells the health of a ManifestWork or a ManifestWorkReplicaSet, in Lua.
//
//go:embed health.lua
var Health string
