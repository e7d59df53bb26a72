package packet

import (
	"strings"
	"unicode/utf8"
)

// cursor reads fields from s. After an error it sets err and returns zero values.
type cursor struct {
	s   string
	err *Error
}

func (c *cursor) fail(err *Error) {
	if c.err == nil {
		c.err = err
	}
	c.s = ""
}

// next returns the next n bytes.
func (c *cursor) next(n int) string {
	if n > len(c.s) {
		c.fail(malformed("a packet ends within a field"))
		return ""
	}
	out := c.s[:n]
	c.s = c.s[n:]
	return out
}

func (c *cursor) byte() byte {
	if s := c.next(1); s != "" {
		return s[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if s := c.next(2); s != "" {
		return uint16(s[0])<<8 | uint16(s[1])
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	high := c.uint16()
	return uint32(high)<<16 | uint32(c.uint16())
}

// varint reads a variable byte integer in its only valid form.
func (c *cursor) varint() int {
	n := 0
	for i := range 4 {
		b := c.byte()
		n |= int(b&0x7F) << (7 * i)
		if b&0x80 != 0 {
			continue
		}
		if b == 0 && i > 0 {
			break
		}
		return n
	}
	c.fail(malformed("an integer has too many bytes"))
	return 0
}

// binary reads bytes prefixed with their length.
func (c *cursor) binary() string { return c.next(int(c.uint16())) }

// text reads a UTF-8 string.
func (c *cursor) text() string {
	s := c.binary()
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		c.fail(malformed("a string is not valid UTF-8 without null characters"))
		return ""
	}
	return s
}

// id reads a packet identifier.
func (c *cursor) id() uint16 {
	id := c.uint16()
	if id == 0 {
		c.fail(violation("packet identifier 0"))
	}
	return id
}

// end checks that nothing is left, and returns the first error.
func (c *cursor) end() error {
	if c.err == nil && c.s != "" {
		c.fail(malformed("a packet is longer than its fields"))
	}
	if c.err != nil {
		return c.err
	}
	return nil
}
