package wirekit

import "github.com/klauspost/compress/zstd"

// encoder is made, and used, before a test begins: its channels must not be those of a bubble of synctest.
var encoder = func() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err) // the options are constants
	}
	encoder.EncodeAll([]byte("{}"), nil)
	return encoder
}()

// Compressed returns a text, however well it can be compressed, as a receiver uncompresses it. wire.Compress leaves out what is not worth it.
func Compressed(text string) []byte { return encoder.EncodeAll([]byte(text), nil) }
