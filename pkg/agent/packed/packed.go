// Package packed keeps API objects in memory in a tenth of the bytes that their
// maps and structs take. An agent holds all objects that it has applied, so as to
// notice without a request when one changes, but looks at few of them at a time:
//
//	var configMaps packed.Kind
//	data, err := configMaps.Pack(object.Object)
//	...
//	var content map[string]any
//	configMaps.Unpack(data, &content)
//
// Objects of one kind are much alike: the same keys, labels and owners. The first
// one that a Kind packs is the dictionary by which all are compressed. What is
// packed are CBOR encodings, which keep integers and floating-point numbers apart
// as Kubernetes does.
package packed

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// Data is one packed value. It never changes, and has no pointers that the garbage
// collector would have to follow.
type Data string

// Kind packs values that are alike. The zero Kind is ready; it must not be copied
// once it is used. It is safe for concurrent use.
type Kind struct {
	first sync.Once
	dict  atomic.Pointer[s2.Dict]
}

// Pack packs value: a map[string]any as it is decoded from JSON, or a struct with
// JSON tags. It fails for what can not be encoded, and keeps nothing of value.
func (k *Kind) Pack(value any) (Data, error) {
	plain, err := direct.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("pack a %T: %w", value, err)
	}
	k.first.Do(func() { k.dict.Store(dictionary(plain)) })
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = k.dict.Load().Encode((*buffer)[:cap(*buffer)], plain)
	return Data(*buffer), nil
}

// Unpack sets value, a pointer to a zero value of what Pack was given, to what k
// packed as data. It panics when that is not possible: then memory is corrupt, and
// whatever the agent would do next may be wrong.
func (k *Kind) Unpack(data Data, value any) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	plain, err := k.dict.Load().Decode((*buffer)[:cap(*buffer)], []byte(data))
	if err == nil {
		*buffer = plain
		err = direct.Unmarshal(plain, value)
	}
	if err != nil {
		panic(fmt.Sprintf("packed: unpack a %T: %v", value, err))
	}
}

// dictionary makes a dictionary of the first value.
func dictionary(sample []byte) *s2.Dict {
	if short := s2.MinDictSize - len(sample); short > 0 {
		sample = append(sample, make([]byte, short)...)
	}
	return s2.MakeDict(sample[:min(len(sample), s2.MaxDictSize)], nil)
}

// buffers are for what is of use during one call only.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
