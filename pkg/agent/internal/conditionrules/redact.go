package conditionrules

import (
	"errors"
	"regexp"
	"strings"
)

// withoutValues returns an error of evaluating expression whose text holds nothing of the object:
// words remain that the expression has, or that errors are made of. Everything else may be a value,
// and becomes "…": a text that is not a number, a key that a map does not have.
func withoutValues(err error, expression string) error {
	own := words(expression)
	text, _, _ := strings.Cut(err.Error(), "\n")
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	text = unquoted.ReplaceAllStringFunc(text, func(part string) string {
		match := unquoted.FindStringSubmatch(part)
		if own[match[2]] {
			return part
		}
		return match[1] + "…" + match[3]
	})
	text = quotation.ReplaceAllStringFunc(text, func(quoted string) string {
		inner := quoted[1 : len(quoted)-1]
		if typeNames[inner] || own[inner] {
			return quoted
		}
		return quoted[:1] + "…" + quoted[len(quoted)-1:]
	})
	text = word.ReplaceAllStringFunc(text, func(w string) string {
		if own[w] || errorWords[w] {
			return w
		}
		return "…"
	})
	return errors.New(masks.ReplaceAllString(text, "…"))
}

// maxErrorText is the maximum length in bytes of the text of an error of an evaluation.
const maxErrorText = 1024

var (
	// unquoted matches errors with a value that has no quotes around it.
	unquoted  = regexp.MustCompile(`(no such key: |non-optional value |insert failed: key )(.*?)( already exists)?$`)
	quotation = regexp.MustCompile("\"[^\"]*\"|'[^']*'|`[^`]*`")
	word      = regexp.MustCompile(`[^\s"'` + "`" + `:,;.()<>\[\]{}…]+`)
	masks     = regexp.MustCompile(`…(?:[\s.:,;<>\[\]{}]*…)+`)
)

func words(text string) map[string]bool {
	found := map[string]bool{}
	for _, w := range word.FindAllString(text, -1) {
		found[w] = true
	}
	return found
}

// typeNames are the types that errors name in quotes.
var typeNames = map[string]bool{
	"bool": true, "bytes": true, "double": true, "dyn": true, "int": true, "list": true, "map": true, "null_type": true, "string": true,
	"type": true, "uint": true, "google.protobuf.Timestamp": true, "google.protobuf.Duration": true, "optional_type": true,
	"optional_type(dyn)": true, "list(dyn)": true, "map(dyn, dyn)": true, "kubernetes.Quantity": true, "kubernetes.URL": true,
	"kubernetes.Semver": true, "kubernetes.NamedFormat": true, "net.IP": true, "net.CIDR": true,
}

// errorWords are the words of the errors of cel-go, of Kubernetes' libraries and of what they call.
var errorWords = words(`
no No such key overload attribute field in of type conversion error from to string int uint double bool bytes list map null_type
timestamp duration dyn unsupported native index value out range bounds size element elements division by zero modulus
integer unsigned overflow NaN values cannot be ordered optional none dereference invalid UTF-8 convert operation
cancelled interrupted actual cost limit exceeded context deadline canceled
initialize entry non-optional insert failed already exists
strconv ParseInt ParseFloat ParseUint ParseBool parsing syntax time as month day hour minute second extra unknown unit missing
IP Address address addresses parse during is not an a IPv4 IPv6 or zone allowed IPv4-mapped network netip ParseAddr ParsePrefix
unable each colon-separated group must have at least one digit too few many characters required unexpected character at
URL URI request regex regexp Illegal matching replacement closing argument repetition operator expression
quantities match the regular quantity semver version short contain numbers number empty called on comparable same could find
precision negative end formatting format clause unrecognized function for decimal can only used was given substring start length
less than equal join input Invalid service account name namespace resource path unhandled instances equality test between internal
google protobuf Timestamp Duration kubernetes Quantity NamedFormat net CIDR Semver
found leading zeroes major minor Major Minor Patch prerelease PreRelease Build build meta data`)
