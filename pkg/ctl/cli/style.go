package cli

// Tone is what a text tells: it decides the colour.
type Tone int

// Tones.
const (
	// Plain text has no colour.
	Plain Tone = iota
	// Good is green, Warn yellow, Bad red.
	Good
	Warn
	Bad
	// Dim is grey, for what is less important.
	Dim
	// Bold is for headings.
	Bold
)

var escapes = [...]string{Good: "\x1b[32m", Warn: "\x1b[33m", Bad: "\x1b[31m", Dim: "\x1b[90m", Bold: "\x1b[1m"}

// Style colours texts.
type Style struct {
	// Colors switches colours on.
	Colors bool
}

// Paint returns the text in the colour of the tone.
func (s Style) Paint(tone Tone, text string) string {
	if !s.Colors || tone == Plain || text == "" {
		return text
	}
	return escapes[tone] + text + "\x1b[0m"
}
