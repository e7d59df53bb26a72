package report

import "regexp"

// Board is the rows of a benchmark, by name, as far as they are wanted. One goroutine at a time may
// use it.
type Board struct {
	rows   []*Row
	wanted *regexp.Regexp
}

// NewBoard makes a board of the rows whose names wanted matches; nil wants all.
func NewBoard(wanted *regexp.Regexp, rows ...*Row) *Board {
	b := &Board{wanted: wanted}
	for _, row := range rows {
		if wanted == nil || wanted.MatchString(row.Name) {
			b.rows = append(b.rows, row)
		}
	}
	return b
}

// Rows are those wanted, in order.
func (b *Board) Rows() []*Row { return b.rows }

// Wants reports whether any of the rows of these names is wanted.
func (b *Board) Wants(names ...string) bool {
	for _, name := range names {
		if b.row(name) != nil {
			return true
		}
	}
	return false
}

// Add adds a run's figure to the row of a name, if that is wanted.
func (b *Board) Add(name string, s Sample) {
	if row := b.row(name); row != nil {
		row.Samples = append(row.Samples, s)
	}
}

// Miss says why the row of a name has no figure.
func (b *Board) Miss(name, why string) {
	if row := b.row(name); row != nil {
		row.Why = why
	}
}

func (b *Board) row(name string) *Row {
	for _, row := range b.rows {
		if row.Name == name {
			return row
		}
	}
	return nil
}
