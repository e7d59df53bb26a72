package command

import (
	"context"
	"io"
)

// maxRead is the size of a read of [Input] in bytes: what a pipe holds.
const maxRead = 64 << 10

// Input returns a reader of in whose Read ends with ctx, with its cause. A Read of in that waits is left alone then: nothing but the end
// of the process ends that of a terminal or a pipe.
func Input(ctx context.Context, in io.Reader) io.Reader {
	return input{in: in, read: func(p []byte) (int, error) {
		type result struct {
			n   int
			err error
		}
		own := make([]byte, min(len(p), maxRead)) // p is the caller's again once this returns
		done := make(chan result, 1)
		go func() {
			n, err := in.Read(own)
			done <- result{n, err}
		}()
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case r := <-done:
			return copy(p, own[:r.n]), r.err
		}
	}}
}

type input struct {
	in   io.Reader
	read func([]byte) (int, error)
}

func (i input) Read(p []byte) (int, error) { return i.read(p) }

// Unwrap returns what is read.
func (i input) Unwrap() io.Reader { return i.in }
