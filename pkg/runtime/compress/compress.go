// Package compress encodes API objects in about a tenth of the memory that their maps and structs
// take. The agent keeps every object that it has applied, so that it notices changes without a
// request, and the hub keeps every work. Both read few of them at a time:
//
//	var configMaps compress.Codec
//	data, err := configMaps.Encode(object.Object)
//	...
//	var content map[string]any
//	configMaps.Decode(data, &content)
//
// Objects of one kind share keys, labels and owners. A Codec uses the first object of about a size that
// it encodes as the compression dictionary for all others of that size. The uncompressed encoding is CBOR, which, like
// Kubernetes, distinguishes integers from floating-point numbers.
package compress

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Data is one encoded value. It is immutable and holds no pointers for the garbage collector to
// follow.
type Data string

// Codec encodes and decodes similar values. The zero Codec is ready to use. It must not be copied
// after first use and is safe for concurrent use.
type Codec struct {
	mu sync.Mutex // held to set one of dicts
	// dicts are the dictionaries by the bits of the size of what they encode. A small first value says
	// little about large ones.
	dicts [sizes]atomic.Pointer[s2.Dict]
}

// sizes is how many sizes have a dictionary of their own; the last one is of all that is larger than
// dictionaries are.
const sizes = 18

// prefixes are the first bytes of data, by size.
const prefixes = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11"

// Encode encodes value, which is a map[string]any as decoded from JSON or a struct with JSON tags.
// It returns an error if value cannot be encoded as CBOR. The result shares no memory with value.
func (c *Codec) Encode(value any) (Data, error) {
	plain, err := direct.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", value, err)
	}
	size := min(bits.Len(uint(len(plain))), sizes-1)
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = c.dictFor(size, plain).Encode((*buffer)[:cap(*buffer)], plain)
	return Data(prefixes[size:size+1] + string(*buffer)), nil
}

// dictFor returns the dictionary of a size; sample becomes it if there is none.
func (c *Codec) dictFor(size int, sample []byte) *s2.Dict {
	if d := c.dicts[size].Load(); d != nil {
		return d
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.dicts[size].Load()
	if d == nil {
		d = dictionary(sample)
		c.dicts[size].Store(d)
	}
	return d
}

// Decode sets value, a pointer to a zero value of the type that was encoded, from data, which the
// same Codec must have encoded. It panics if data cannot be decoded: memory is corrupt then, and
// nobody must act on it.
func (c *Codec) Decode(data Data, value any) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	plain, err := c.dicts[data[0]].Load().Decode((*buffer)[:cap(*buffer)], []byte(data[1:]))
	if err == nil {
		*buffer = plain
		err = direct.Unmarshal(plain, value)
	}
	if err != nil {
		panic(fmt.Sprintf("compress: decode %T: %v", value, err))
	}
}

// dictionary returns a dictionary made from the first value.
func dictionary(sample []byte) *s2.Dict {
	if short := s2.MinDictSize - len(sample); short > 0 {
		sample = append(sample, make([]byte, short)...)
	}
	return s2.MakeDict(sample[:min(len(sample), s2.MaxDictSize)], nil)
}

// buffers holds scratch space that is used during a single call.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
