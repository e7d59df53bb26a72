//go:build !race

package sim

// usualSeeds is how many seeds go test runs.
const usualSeeds = 25
