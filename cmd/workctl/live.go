package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/workwire/workwire/pkg/ctl/cli"
)

// live shows a line per key. On a terminal, lines change in place; elsewhere each change is a new line.
type live struct {
	options *cli.Options
	keys    []string
	lines   map[string]string
}

func newLive(o *cli.Options) *live { return &live{options: o, lines: map[string]string{}} }

func (l *live) show(key, line string) {
	if l.lines[key] == line {
		return
	}
	width, height, terminal := l.options.Terminal()
	drawn := len(l.keys)
	if l.lines[key] == "" {
		l.keys = append(l.keys, key)
		slices.Sort(l.keys)
	}
	l.lines[key] = line
	if !terminal || len(l.keys) >= height {
		_, _ = fmt.Fprintln(l.options.Out, line)
		return
	}
	var out strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", drawn)
	}
	for _, k := range l.keys {
		text := l.lines[k]
		if !strings.Contains(text, "\x1b") { // a cut must not lose the end of a colour
			text = cli.Cut(text, width)
		}
		fmt.Fprintf(&out, "\r\x1b[K%s\n", text)
	}
	_, _ = fmt.Fprint(l.options.Out, out.String())
}
