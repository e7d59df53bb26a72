package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Cell is one value of a table.
type Cell struct {
	Text string
	Tone Tone
}

// Rows is a table for people. Columns are as wide as their longest value; the last one has no
// padding.
type Rows struct {
	// Header has the names of the columns.
	Header []string
	// Rows have a cell per column.
	Rows [][]Cell

	widths []int // of the columns, as written last
}

// Add adds a row. A cell is a string or a [Cell].
func (t *Rows) Add(cells ...any) {
	row := make([]Cell, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case Cell:
			row[i] = cell
		case string:
			row[i] = Cell{Text: cell}
		}
		if row[i].Text == "" {
			row[i].Text = "-"
		}
	}
	t.Rows = append(t.Rows, row)
}

// Write writes the table. Called again, it writes rows without the header, below those that it has written. If
// width is not 0, lines are cut to so many characters. Control characters in texts become spaces, so that what a
// cluster reports cannot steer the terminal.
func (t *Rows) Write(w io.Writer, style Style, width int) error {
	rows := t.Rows
	if t.widths == nil {
		t.widths = make([]int, len(t.Header))
		header := make([]Cell, len(t.Header))
		for i, name := range t.Header {
			header[i] = Cell{Text: name, Tone: Bold}
		}
		rows = append([][]Cell{header}, rows...)
	}
	for _, row := range rows {
		for i := range row {
			row[i].Text = OneLine(row[i].Text)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i].Text))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		left := width
		for i, cell := range row {
			text := cell.Text
			if width > 0 {
				text = cut(text, left)
			}
			out.WriteString(style.Paint(cell.Tone, text))
			pad := t.widths[i] - utf8.RuneCountInString(text) + 2
			left -= t.widths[i] + 2
			if i == len(row)-1 || width > 0 && left <= 0 {
				break
			}
			out.WriteString(strings.Repeat(" ", pad))
		}
		out.WriteByte('\n')
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// cut returns the text, cut to so many characters with an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Plural returns how many there are, with what is said of one, or of several: "1 cluster has", "2 clusters have".
func Plural(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// OneLine returns the text with control characters replaced by spaces.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
