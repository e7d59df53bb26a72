package broker

import (
	"io"
	"sync"
)

const (
	smallInput = 512      // bytes of a connection at rest
	largeInput = 16 << 10 // bytes of one that receives more at once
)

// input buffers the bytes of a connection. At rest it has smallInput bytes; a larger buffer is
// borrowed while there is more to read. The zero input is empty.
type input struct {
	small      [smallInput]byte
	large      *[largeInput]byte // nil: small is in use
	start, end int               // what is read and not taken
	more       bool              // the last read filled the buffer: there is probably more
	received   int               // bytes that were read since the start; may overflow
}

var largeInputs = sync.Pool{New: func() any { return new([largeInput]byte) }}

func (in *input) buffer() []byte {
	if in.large != nil {
		return in.large[:]
	}
	return in.small[:]
}

// bytes returns what is buffered.
func (in *input) bytes() []byte { return in.buffer()[in.start:in.end] }

// next removes the next n bytes, which are buffered, and returns them. They are valid until the
// next fill.
func (in *input) next(n int) []byte {
	in.start += n
	return in.buffer()[in.start-n : in.start]
}

// fill reads once from src, with room for a packet of size bytes in all. size is at most largeInput.
func (in *input) fill(src io.Reader, size int) error {
	if in.start == in.end {
		in.start, in.end = 0, 0
		if in.large != nil && !in.more {
			in.release()
		}
	}
	if in.large == nil && (in.more || size > smallInput) {
		large := largeInputs.Get().(*[largeInput]byte)
		in.end = copy(large[:], in.bytes())
		in.large, in.start = large, 0
	}
	if in.start+size > len(in.buffer()) || in.end == len(in.buffer()) {
		in.end = copy(in.buffer(), in.bytes())
		in.start = 0
	}
	room := in.buffer()[in.end:]
	n, err := src.Read(room)
	in.end += n
	in.received += n
	in.more = n == len(room)
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// release returns a borrowed buffer. What is buffered is lost.
func (in *input) release() {
	if in.large != nil {
		largeInputs.Put(in.large)
	}
	in.large, in.start, in.end, in.more = nil, 0, 0, false
}
