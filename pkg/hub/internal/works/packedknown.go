package works

import "sync"

// Limits of [knownTexts].
const (
	maxKnown     = 16 << 10
	maxKnownText = 256
)

// known are the strings that works have in common: keys, conditions' types, reasons and messages.
var known knownTexts

// knownTexts numbers the first strings that it sees. It forgets none: what has been written refers to
// them.
type knownTexts struct {
	mu      sync.RWMutex
	numbers map[string]int // guarded by mu
	texts   []string       // guarded by mu
}

// number returns the number of s, and false if s is too long or there are too many.
func (k *knownTexts) number(s string) (n int, ok bool) {
	if len(s) > maxKnownText {
		return 0, false
	}
	k.mu.RLock()
	n, ok = k.numbers[s]
	full := len(k.texts) >= maxKnown
	k.mu.RUnlock()
	if ok || full {
		return n, ok
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n, ok = k.numbers[s]; ok || len(k.texts) >= maxKnown {
		return n, ok
	}
	if k.numbers == nil {
		k.numbers = make(map[string]int)
	}
	own := string([]byte(s)) // s may be part of a whole object
	k.numbers[own], k.texts = len(k.texts), append(k.texts, own)
	return len(k.texts) - 1, true
}

// text returns the string with a number.
func (k *knownTexts) text(n int) string {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.texts[n]
}

// canonical returns a string that equals s, the same memory for all calls if there is room.
func (k *knownTexts) canonical(s string) string {
	if n, ok := k.number(s); ok {
		return k.text(n)
	}
	return string([]byte(s))
}
