package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Decoding makes a list item of at least 40 bytes out of the two bytes of "1,", and a compressed message is far
// smaller than its text. So the text is read once before it is decoded, which takes no memory: what it would
// become is added up from the types that it is decoded into. All lists and objects of all messages are
// bounded here; the texts in them by [bound].
const (
	// freeStructure are the bytes of list items, members of maps, and objects that any text may become.
	freeStructure = 64 << 10
	// maxStructureFactor is how many of these bytes a longer text may become, for each of its own. Those
	// of real messages become less than two, because their items have names.
	maxStructureFactor = 4
)

// limitedItems are the limits of lists by the type of their items: of all lists of a message together.
var limitedItems = [...]struct {
	of   reflect.Type
	max  int
	what string
}{
	{reflect.TypeFor[SpecVersion](), MaxResyncEntries, "works"},
	{reflect.TypeFor[StatusVersion](), MaxResyncEntries, "works"},
	{reflect.TypeFor[int](), MaxDigestBuckets, "buckets"},
	{reflect.TypeFor[workv1.ManifestCondition](), MaxManifests, "manifests"},
	{reflect.TypeFor[workv1.OrphaningRule](), MaxManifests, "orphaningRules"},
	{reflect.TypeFor[metav1.OwnerReference](), maxMetadataItems, "ownerReferences"},
	{reflect.TypeFor[metav1.ManagedFieldsEntry](), maxMetadataItems, "managedFields"},
}

// structure is what decoding a value of a type takes beside its text. Nil: nothing that matters.
type structure struct {
	fields []field    // of an object
	each   *structure // of each item of a list, or member of a map
	isList bool
	isMap  bool
	item   int // bytes of an item or a member
	limit  int // index in limitedItems, of items; -1: none
	value  int // bytes of the value itself, which is behind a pointer
	text   int // the most bytes of a string as it is written; 0: [bound] says
}

type field struct {
	name string
	*structure
}

var structures sync.Map // reflect.Type → *structure

// structureOf returns that of a type. It is made once.
func structureOf(t reflect.Type) *structure {
	if known, ok := structures.Load(t); ok {
		return known.(*structure)
	}
	s := newStructure(t)
	structures.Store(t, s)
	return s
}

// newStructure returns that of a type, which must not contain itself.
func newStructure(t reflect.Type) *structure {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil // raw JSON, or a time
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := &structure{}
		if inner := newStructure(t.Elem()); inner != nil {
			*s = *inner
		}
		s.value += int(t.Elem().Size())
		return s
	case reflect.Slice:
		return &structure{isList: true, each: newStructure(t.Elem()), item: int(t.Elem().Size()), limit: limitOf(t.Elem())}
	case reflect.Map:
		return &structure{isMap: true, each: newStructure(t.Elem()), item: int(t.Key().Size() + t.Elem().Size()), limit: -1}
	case reflect.Struct:
		s := &structure{}
		s.addFields(t)
		if len(s.fields) == 0 {
			return nil
		}
		return s
	default:
		return nil
	}
}

// maxEscaped is how many bytes the escape of one is.
const maxEscaped = len(`\u0061`)

func limitOf(item reflect.Type) int {
	for i := range limitedItems {
		if limitedItems[i].of == item {
			return i
		}
	}
	return -1
}

func (s *structure) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			s.addFields(f.Type)
		case f.IsExported():
			inner := newStructure(f.Type)
			if f.Type == reflect.TypeFor[types.UID]() && (t == reflect.TypeFor[SpecVersion]() || t == reflect.TypeFor[StatusVersion]()) {
				inner = &structure{text: maxEscaped * MaxUID} // other UIDs have no limit of their own
			}
			if inner != nil {
				if name == "" {
					name = f.Name
				}
				s.fields = append(s.fields, field{name, inner})
			}
		}
	}
}

// field returns the structure of the field that encoding/json sets for a key, which ignores case.
func (s *structure) field(key []byte) *structure {
	if bytes.IndexByte(key, '\\') >= 0 {
		var unquoted string
		if json.Unmarshal(append(append([]byte{'"'}, key...), '"'), &unquoted) == nil {
			key = []byte(unquoted)
		}
	}
	for i := range s.fields {
		if bytes.EqualFold(key, []byte(s.fields[i].name)) {
			return s.fields[i].structure
		}
	}
	return nil
}

// checkStructure returns an error if text, which is to be decoded into a value of a type, is nested too deeply,
// has too many items, or would take much more memory than it is long. Text that is no JSON may pass: it takes
// no memory to find that out.
func checkStructure(text []byte, t reflect.Type) error {
	r := reader{text: text, left: freeStructure + maxStructureFactor*len(text)}
	r.value(structureOf(t), 0)
	return r.err
}

// reader reads a text once.
type reader struct {
	text  []byte
	at    int
	key   []byte // the last one
	left  int    // bytes that it may still become
	err   error
	items [len(limitedItems)]int
}

// count counts n bytes.
func (r *reader) count(n int) {
	if r.left -= n; r.left < 0 && r.err == nil {
		r.err = fmt.Errorf("its lists and objects have too little content: decoded, they would take more than %d times the memory of its %d bytes",
			maxStructureFactor, len(r.text))
	}
}

// countItem counts an item of a list, or a member of a map.
func (r *reader) countItem(s *structure) {
	r.count(s.item)
	if s.limit < 0 {
		return
	}
	limit := &limitedItems[s.limit]
	if r.items[s.limit]++; r.items[s.limit] > limit.max && r.err == nil {
		r.err = fmt.Errorf("the list has more than %d entries: %s", limit.max, limit.what)
	}
}

// next skips spaces and returns the next byte, 0 at the end.
func (r *reader) next() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value reads a value. Where the text is not as JSON has it, it skips a byte.
func (r *reader) value(s *structure, depth int) {
	c := r.next()
	if s != nil && c != 'n' {
		r.count(s.value)
	}
	switch {
	case c == '{' && s != nil && (s.isMap || s.fields != nil):
		r.object(s, depth+1)
	case c == '[' && s != nil && s.isList:
		r.list(s, depth+1)
	case c == '{' || c == '[':
		r.skip(depth)
	case c == '"':
		if text := r.quoted(); s != nil && s.text > 0 && len(text) > s.text && r.err == nil {
			r.err = tooLong(string(r.key), text, s.text/maxEscaped)
		}
	default:
		for r.at++; r.at < len(r.text); r.at++ {
			switch r.text[r.at] {
			case ',', ']', '}', '"', '[', '{', ':':
				return
			}
		}
	}
}

func (r *reader) object(s *structure, depth int) {
	if !r.enter(depth) {
		return
	}
	for r.err == nil {
		switch r.next() {
		case 0:
			return
		case '}':
			r.at++
			return
		case '"':
			r.key = r.quoted()
			if r.next() == ':' {
				r.at++
			}
			if s.isMap {
				r.countItem(s)
				r.value(s.each, depth)
			} else {
				r.value(s.field(r.key), depth)
			}
		default:
			r.at++
		}
	}
}

func (r *reader) list(s *structure, depth int) {
	if !r.enter(depth) {
		return
	}
	for r.err == nil {
		switch r.next() {
		case 0:
			return
		case ']':
			r.at++
			return
		case ',':
			r.at++
		default:
			r.countItem(s)
			r.value(s.each, depth)
		}
	}
}

// enter begins an object or a list.
func (r *reader) enter(depth int) bool {
	r.at++
	if depth > maxDepth && r.err == nil {
		r.err = errTooDeep
	}
	return r.err == nil
}

// errTooDeep says that data is nested too deeply.
var errTooDeep = fmt.Errorf("data is nested deeper than %d levels", maxDepth)

// skip skips an object or a list at a depth that is decoded as it is, or not at all.
func (r *reader) skip(depth int) {
	length, deep := nesting(r.text[r.at:], maxDepth-depth)
	r.at += length
	if deep && r.err == nil {
		r.err = errTooDeep
	}
}

// quoted skips a string and returns what is between its quotes.
func (r *reader) quoted() []byte {
	r.at++
	start, end := r.at, -1
	for r.at < len(r.text) {
		if end < r.at {
			if end = bytes.IndexByte(r.text[r.at:], '"'); end < 0 {
				break
			}
			end += r.at
		}
		if escape := bytes.IndexByte(r.text[r.at:end], '\\'); escape >= 0 {
			r.at += escape + 2
			continue
		}
		r.at = end + 1
		return r.text[start:end]
	}
	r.at = len(r.text)
	return nil
}
