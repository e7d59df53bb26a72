package wire

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Delta is a text as its difference from an earlier one, the base (docs/protocol.md, Deltas). [SpecDelta] and
// [StatusDelta] have one. Who applies it compares a hash of the result, so that not one byte can become another one.
type Delta struct {
	// Base is the hash of the base; required.
	Base string `json:"base"`
	// Parts make the text, one after the other; required.
	Parts []DeltaPart `json:"parts"`
}

// DeltaPart is a part of a text: new text, or a piece of the base.
type DeltaPart struct {
	// Text is new.
	Text string `json:"text,omitempty"`
	// Skip is how many bytes of the base are between the end of the piece before, or the start, and this one; negative if it
	// is before that end. So changes of many places in the same way look the same, and are compressed.
	Skip int `json:"skip,omitempty"`
	// Count is the length of the piece in bytes; 0 if there is a Text.
	Count int `json:"count,omitempty"`
}

// NewBytes returns how many bytes of the text are new.
func (d *Delta) NewBytes() (n int) {
	for _, part := range d.Parts {
		n += len(part.Text)
	}
	return n
}

// check returns an error unless d and the hash of its result are complete.
func (d *Delta) check(hash string) error {
	if len(d.Base) > maxHash {
		return tooLong("base", d.Base, maxHash)
	}
	if d.Base == "" || hash == "" || len(d.Parts) == 0 {
		return errors.New("the hash, base and parts are required")
	}
	return nil
}

// ErrOtherResult is wrapped by the errors of [SpecDelta.Apply] and [StatusDelta.Apply] if the result is not what the
// delta stands for.
var ErrOtherResult = errors.New("the result has another hash than the delta says")

// apply returns the text of d, which has this hash and at most limit bytes.
func (d *Delta) apply(base []byte, hash string, limit int) ([]byte, error) {
	var text []byte
	at := 0 // in the base
	for i, part := range d.Parts {
		piece := []byte(part.Text)
		if part.Text == "" {
			from := at + part.Skip
			if from < 0 || part.Count < 1 || part.Count > len(base) || from > len(base)-part.Count {
				return nil, fmt.Errorf("part %d is %d bytes from %d of %d", i, part.Count, from, len(base))
			}
			at = from + part.Count
			piece = base[from:at]
		}
		if len(text)+len(piece) > limit {
			return nil, fmt.Errorf("the result is larger than %d bytes", limit)
		}
		text = append(text, piece...)
	}
	if sum := hexSHA256(text); sum != hash {
		return nil, fmt.Errorf("%w: want %s, got %s", ErrOtherResult, hash, sum)
	}
	return text, nil
}

const (
	// deltaWindow is the length in bytes from which pieces of the base are looked for. A part costs about as much.
	deltaWindow = 32
	// deltaPlaces is how often what is looked for may be in the base. What is there more often says little: beside it is
	// what is rarer.
	deltaPlaces = 32
	// deltaLooks bounds how many bytes are compared, for each of the text.
	deltaLooks = 32
)

// difference returns text as its difference from base, which has this hash. It returns an error if text is not UTF-8,
// which a delta cannot have.
func difference(text, base []byte, baseHash string) (Delta, error) {
	d := Delta{Base: baseHash}
	if !utf8.Valid(text) {
		return d, errors.New("it is not UTF-8")
	}
	m := matcher{text: text, base: base, places: make(map[string][]int, len(base)/deltaWindow), looks: deltaLooks * len(text)}
	for at := 0; at+deltaWindow <= len(base); at += deltaWindow {
		window := string(base[at : at+deltaWindow])
		m.places[window] = append(m.places[window], at)
	}
	for at := 0; at+deltaWindow <= len(text); {
		if best := m.next(at).whole(text); best.count < deltaWindow {
			at += deltaWindow
		} else {
			d.add(text[m.last.end():best.at], best.from-m.last.from-m.last.count, best.count)
			m.last = best
			at = best.end()
		}
	}
	d.add(text[m.last.end():], 0, 0)
	return d, nil
}

// piece is a piece of the base, and where it is in the text.
type piece struct{ at, from, count int }

func (p piece) end() int { return p.at + p.count }

// matcher finds pieces of a base in a text.
type matcher struct {
	text, base []byte
	places     map[string][]int // of what is deltaWindow bytes long, in the base; each deltaWindow-th alone
	last       piece            // that was found, which those that follow do not overlap
	looks      int              // how many bytes may still be compared
}

// next returns the longest piece with a window that begins at a place of the text, or less than deltaWindow bytes behind.
// Of equal ones it is the first behind the last, since most of a text stays in its order. Texts repeat themselves:
// the first window may be found at many places, and one of the next ones at the right one.
func (m *matcher) next(at int) (best piece) {
	for i := at; i < at+deltaWindow && i+deltaWindow <= len(m.text); i++ {
		best = m.longer(best, i, m.last.from+i-m.last.at) // as if as many bytes had changed
		places := m.places[string(m.text[i:i+deltaWindow])]
		if len(places) > deltaPlaces || m.looks <= 0 {
			continue
		}
		first, _ := slices.BinarySearch(places, m.last.from+m.last.count)
		for n := range places {
			best = m.longer(best, i, places[(first+n)%len(places)])
		}
	}
	return best
}

// longer returns the piece with base[from] at text[at] if it is longer than best, which is returned otherwise.
func (m *matcher) longer(best piece, at, from int) piece {
	if from >= len(m.base) || at-from == best.at-best.from && at < best.end() {
		return best
	}
	p := piece{at, from, 0}
	for p.end() < len(m.text) && p.from+p.count < len(m.base) && m.text[p.end()] == m.base[p.from+p.count] {
		p.count++
	}
	for p.at > m.last.end() && p.from > 0 && m.text[p.at-1] == m.base[p.from-1] {
		p = piece{p.at - 1, p.from - 1, p.count + 1}
	}
	m.looks -= p.count
	if p.count > best.count {
		return p
	}
	return best
}

// whole returns p without the parts of characters at its ends.
func (p piece) whole(text []byte) piece {
	for p.count > 0 && !utf8.RuneStart(text[p.at]) {
		p = piece{p.at + 1, p.from + 1, p.count - 1}
	}
	for end := p.end(); p.count > 0 && end < len(text) && !utf8.RuneStart(text[end]); end-- {
		p.count--
	}
	return p
}

// add adds new text and a piece of the base after it, each unless it is empty.
func (d *Delta) add(text []byte, skip, count int) {
	if len(text) > 0 {
		d.Parts = append(d.Parts, DeltaPart{Text: string(text)})
	}
	if count > 0 {
		d.Parts = append(d.Parts, DeltaPart{Skip: skip, Count: count})
	}
}
