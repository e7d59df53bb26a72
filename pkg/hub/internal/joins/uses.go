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

// set says with which token a cluster has joined; empty: with none, or the cluster is gone.
func (u *uses) set(cluster, token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
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
