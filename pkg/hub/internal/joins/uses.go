package joins

import "sync"

// uses knows how many clusters have joined with each token, so that a request costs the same whatever their number. Its methods are safe for
// concurrent use.
type uses struct {
	mu      sync.Mutex
	tokens  map[string]string // by cluster
	numbers map[string]int    // by token
}

func newUses() *uses { return &uses{tokens: map[string]string{}, numbers: map[string]int{}} }

// set notes the token that a cluster has joined with; empty: with none, or the cluster is gone. It asks for it while nobody else notes one, so that
// what was asked for later is noted later.
func (u *uses) set(cluster string, latest func() string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	token := latest()
	if before := u.tokens[cluster]; before != "" {
		if u.numbers[before]--; u.numbers[before] == 0 {
			delete(u.numbers, before)
		}
	}
	if delete(u.tokens, cluster); token != "" {
		u.tokens[cluster] = token
		u.numbers[token]++
	}
}

// besides returns how many clusters have joined with a token, without one of them.
func (u *uses) besides(token, cluster string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if token != "" && u.tokens[cluster] == token {
		return u.numbers[token] - 1
	}
	return u.numbers[token]
}
