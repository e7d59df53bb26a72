package fields

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pointer is a JSON pointer, RFC 6901. It is linked from its last token to its first, so that
// comparing builds no text where nothing differs. The nil pointer is the whole object.
type Pointer struct {
	parent *Pointer
	key    string
	index  int // of an item, if key is empty
}

// Key returns the pointer to a field of the object that p points to.
func (p *Pointer) Key(key string) *Pointer { return &Pointer{parent: p, key: key} }

func (p *Pointer) item(index int) *Pointer { return &Pointer{parent: p, index: index} }

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// String returns the pointer as text.
func (p *Pointer) String() string {
	if p == nil {
		return ""
	}
	if p.key == "" {
		return fmt.Sprintf("%s/%d", p.parent, p.index)
	}
	return p.parent.String() + "/" + pointerEscapes.Replace(p.key)
}

// ParsePointer returns the unescaped tokens of a JSON pointer. The empty pointer is an error.
func ParsePointer(text string) ([]string, error) {
	if text == "" {
		return nil, errors.New("it names the whole manifest")
	}
	if !strings.HasPrefix(text, "/") {
		return nil, errors.New(`it must begin with "/"`)
	}
	tokens := strings.Split(text[1:], "/")
	for i, token := range tokens {
		for at := range token {
			if token[at] == '~' && !strings.HasPrefix(token[at+1:], "0") && !strings.HasPrefix(token[at+1:], "1") {
				return nil, errors.New(`"~" must be followed by 0 or 1`)
			}
		}
		tokens[i] = pointerUnescapes.Replace(token)
	}
	return tokens, nil
}

// ListIndex returns the index that a token of a JSON pointer has in a list of the given length. It
// has no leading zeros.
func ListIndex(token string, length int) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && i < length && strconv.Itoa(i) == token
}

// RemovePointer returns value without the field or item that the tokens of a JSON pointer lead to,
// if it exists. It changes value.
func RemovePointer(value any, tokens []string) any {
	switch value := value.(type) {
	case map[string]any:
		child, ok := value[tokens[0]]
		switch {
		case !ok:
		case len(tokens) == 1:
			delete(value, tokens[0])
		default:
			value[tokens[0]] = RemovePointer(child, tokens[1:])
		}
	case []any:
		i, ok := ListIndex(tokens[0], len(value))
		switch {
		case !ok:
		case len(tokens) == 1:
			return slices.Delete(value, i, i+1)
		default:
			value[i] = RemovePointer(value[i], tokens[1:])
		}
	}
	return value
}
