//go:build race

package sim

// usualSeeds is how many seeds go test runs: the race detector makes each six times as long.
const usualSeeds = 8
