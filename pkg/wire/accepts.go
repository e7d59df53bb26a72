package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/klauspost/compress/zstd"
)

// Accepts is what the sender of an event can read that OCM's protocol does not have
// (docs/protocol.md, Accepted forms).
type Accepts struct {
	// Deltas: of statuses if a source says so, of specs if an agent does.
	Deltas bool
	// Zstd: data of specs and statuses that is compressed with zstd.
	Zstd bool
}

// Accepted is what Workwire's sources and agents accept.
var Accepted = Accepts{Deltas: true, Zstd: true}

const (
	acceptsDeltas = "deltas"
	acceptsZstd   = "zstd"
)

// String returns the value of the extension, empty for nothing.
func (a Accepts) String() string {
	names := make([]string, 0, 2)
	if a.Deltas {
		names = append(names, acceptsDeltas)
	}
	if a.Zstd {
		names = append(names, acceptsZstd)
	}
	return strings.Join(names, ",")
}

// ParseAccepts parses the value of the extension. What it does not know, it ignores.
func ParseAccepts(text string) Accepts {
	if text == "" {
		return Accepts{}
	}
	names := strings.Split(text, ",")
	return Accepts{Deltas: slices.Contains(names, acceptsDeltas), Zstd: slices.Contains(names, acceptsZstd)}
}

const (
	// minCompressed is the size in bytes of the data from which compression is tried.
	minCompressed = 512
	// maxCompressed is that up to which data is compressed, and what a receiver takes: larger data would
	// pass the broker's packet limit as if it were small.
	maxCompressed = 1 << 20
	// zstdContentType is the content type of compressed data. Receivers go by the data, because a
	// signature covers the data and not the content type.
	zstdContentType = "application/vnd.workwire.zstd"
)

// zstdMagic are the first bytes of compressed data. No JSON begins so, nor do sealed data.
var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(maxCompressed), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd: %v", err)) // the options are constants
	}
	return encoder
})

var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxCompressed),
		zstd.WithDecoderMaxWindow(maxCompressed), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("zstd: %v", err))
	}
	return decoder
})

// Compress compresses the data of e, a spec, a status or a delta, if that makes it smaller by a tenth or more
// (docs/protocol.md, Accepted forms). It must not be called for data that is sealed, and before e is
// signed.
func Compress(e *cloudevents.Event) error {
	data := e.Data()
	if len(data) < minCompressed || len(data) > maxCompressed {
		return nil
	}
	compressed := zstdEncoder().EncodeAll(data, make([]byte, 0, len(data)/2))
	if 10*len(compressed) > 9*len(data) {
		return nil
	}
	return e.SetData(zstdContentType, compressed)
}

// plainBuffers are buffers of maxCompressed bytes to uncompress into. A frame may claim any size: nothing is
// allocated for what it claims.
var plainBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, maxCompressed)) }}

// withPlain calls use with the data of e as it was before [Compress], which use must not keep. It returns the
// error of use, or one that says that the data cannot be uncompressed.
func withPlain(e cloudevents.Event, use func(plain []byte) error) error {
	data := e.Data()
	if !bytes.HasPrefix(data, zstdMagic) {
		return use(data)
	}
	buffer := plainBuffers.Get().(*[]byte)
	defer plainBuffers.Put(buffer)
	plain, err := zstdDecoder().DecodeAll(data, *buffer)
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded), err == nil && len(plain) > maxCompressed:
		return fmt.Errorf("uncompressed, it is larger than %d bytes", maxCompressed)
	case err != nil:
		return fmt.Errorf("uncompress: %w", err)
	case len(plain) > PlainSize(e): // several frames: receivers are paid for what the first one states
		return errors.New("uncompressed, it is larger than it states")
	default:
		return use(plain)
	}
}

// PlainSize returns the size of the data of e as it was before [Compress], without uncompressing it; if they do
// not say, the largest that is accepted.
func PlainSize(e cloudevents.Event) int {
	data := e.Data()
	if !bytes.HasPrefix(data, zstdMagic) {
		return len(data)
	}
	var header zstd.Header
	if header.Decode(data) != nil || !header.HasFCS || header.FrameContentSize > maxCompressed {
		return maxCompressed
	}
	return int(header.FrameContentSize)
}

// PlainData returns the data of e as it was before [Compress], or an error if it cannot be uncompressed.
func PlainData(e cloudevents.Event) (data []byte, err error) {
	err = withPlain(e, func(plain []byte) error {
		data = bytes.Clone(plain)
		return nil
	})
	return data, err
}
