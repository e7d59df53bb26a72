package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
)

// Extension names (docs/protocol.md, Extensions).
const (
	extResourceID        = "resourceid"
	extResourceVersion   = "resourceversion"
	extClusterName       = "clustername"
	extOriginalSource    = "originalsource"
	extMetadata          = "metadata"
	extDeletionTimestamp = "deletiontimestamp"
	extSequenceID        = "sequenceid"
	extStatusHash        = "statushash"
	extLogTracing        = "logtracing"
	extSourceIdentity    = "sourceidentity"
	extContentHash       = "contenthash"
	extAuthoritative     = "authoritative"
	extSession           = "session"
	extExpiryTime        = "expirytime"
	extReceivedTime      = "receivedtime"
	extAppliedTime       = "appliedtime"
	extReadyTime         = "readytime"
	extAccepts           = "accepts"
)

const contentType = "application/json"

// setSender sets who sends e, the cluster it is about, and its `originalsource`.
func setSender(e *cloudevents.Event, sender string, cluster ClusterName, original SourceID) {
	e.SetSource(sender)
	e.SetExtension(extClusterName, string(cluster))
	e.SetExtension(extOriginalSource, string(original))
}

// setWork sets the work that e is about.
func setWork(e *cloudevents.Event, uid k8stypes.UID, generation Generation, trace string) {
	e.SetExtension(extResourceID, string(uid))
	e.SetExtension(extResourceVersion, strconv.FormatInt(int64(generation), 10))
	setText(e, extLogTracing, trace)
}

// setText sets an extension that an empty value leaves out.
func setText(e *cloudevents.Event, name, value string) {
	if value != "" {
		e.SetExtension(name, value)
	}
}

// setFlag sets an extension to true, or leaves it out.
func setFlag(e *cloudevents.Event, name string, on bool) {
	if on {
		e.SetExtension(name, "true")
	}
}

// setMicroTime sets an extension that the zero time leaves out.
func setMicroTime(e *cloudevents.Event, name string, at metav1.MicroTime) {
	if !at.IsZero() {
		e.SetExtension(name, at.UTC().Format(metav1.RFC3339Micro))
	}
}

// setExpiry sets when the broker may drop e, unless at is zero (docs/protocol.md, Transport).
func setExpiry(e *cloudevents.Event, at time.Time) {
	if !at.IsZero() {
		e.SetExtension(extExpiryTime, at.UTC())
	}
}

func setMetadata(e *cloudevents.Event, meta *metav1.ObjectMeta) error {
	data, err := json.Marshal(meta)
	if err != nil {
		return fmt.Errorf("encode the metadata of work %q: %w", meta.Name, err)
	}
	e.SetExtension(extMetadata, string(data))
	return nil
}

func setData(e *cloudevents.Event, data any) error {
	encoded, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode the data of event %s: %w", e.Type(), err)
	}
	return e.SetData(contentType, encoded)
}

// decodeData decodes the data of e, which should be a what, if it is within the limits.
func decodeData[T any](e cloudevents.Event, data *T, what string) error {
	if err := withPlain(e, func(plain []byte) error { return decodeBounded(plain, data) }); err != nil {
		return fmt.Errorf("data is no %s: %w", what, err)
	}
	return nil
}

// decodeBounded decodes text if it is within the limits.
func decodeBounded[T any](text []byte, value *T) error {
	if err := checkStructure(text, reflect.TypeFor[T]()); err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// extensions are the extensions of one event, which copies all of them whenever they are read.
type extensions map[string]any

// text returns an extension as text, empty if it is not set.
func (x extensions) text(name string) string {
	value, ok := x[name]
	if !ok {
		return ""
	}
	text, err := types.Format(value)
	if err != nil {
		return ""
	}
	return text
}

// trace returns the extension logtracing, empty if it is too long. Nothing depends on it.
func (x extensions) trace() string {
	if text := x.text(extLogTracing); len(text) <= maxTrace {
		return text
	}
	return ""
}

// flag reports whether an extension is true.
func (x extensions) flag(name string) bool { return x.text(name) == "true" }

var (
	memoryIdentityShape = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	sessionShape        = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	contentHashShape    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// shaped returns an extension, empty if it is not set. It fails if its text does not have this
// shape.
func (x extensions) shaped(name string, shape *regexp.Regexp) (string, error) {
	text := x.text(name)
	if text != "" && !shape.MatchString(text) {
		return "", fmt.Errorf("extension %s %.80q: want %s", name, text, shape)
	}
	return text, nil
}

// metadata decodes the extension into meta, and reports whether it is set.
func (x extensions) metadata(meta *metav1.ObjectMeta) (bool, error) {
	text := x.text(extMetadata)
	if text == "" {
		return false, nil
	}
	var read metav1.ObjectMeta
	err := decodeBounded([]byte(text), &read)
	if err == nil {
		err = checkMeta(&read)
	}
	if err != nil {
		return false, fmt.Errorf("extension metadata: %w", err)
	}
	*meta = read
	return true, nil
}

// checkMeta returns an error if a name of the metadata is too long, or a time is none of JSON.
func checkMeta(meta *metav1.ObjectMeta) error {
	switch {
	case len(meta.Name) > maxName:
		return tooLong("metadata: name", meta.Name, maxName)
	case len(meta.GenerateName) > maxName:
		return tooLong("metadata: generateName", meta.GenerateName, maxName)
	case len(meta.Namespace) > maxName:
		return tooLong("metadata: namespace", meta.Namespace, maxName)
	case !isJSONTime(meta.CreationTimestamp.Time):
		return fmt.Errorf("metadata: creationTimestamp: %w", errYear)
	case meta.DeletionTimestamp != nil && !isJSONTime(meta.DeletionTimestamp.Time):
		return fmt.Errorf("metadata: deletionTimestamp: %w", errYear)
	case slices.ContainsFunc(meta.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Time != nil && !isJSONTime(f.Time.Time) }):
		return fmt.Errorf("metadata: managedFields: time: %w", errYear)
	default:
		return nil
	}
}

var errYear = errors.New("in UTC, the year must have four digits")

// isJSONTime reports whether a [metav1.Time] can be read again that was written as JSON, in UTC: 9999-12-31T23:59:59-01:00
// becomes a time of the year 10000, and what holds that is never read again.
func isJSONTime(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// expiry returns the time of the extension expirytime, zero if it is not set or no time.
func (x extensions) expiry() time.Time {
	at, err := types.ToTime(x[extExpiryTime])
	if err != nil {
		return time.Time{}
	}
	return at
}

// microTime returns the time of an extension, zero if it is not set or no time that JSON can show.
// Nothing depends on these times, so a status with a wrong one is not refused.
func (x extensions) microTime(name string) metav1.MicroTime {
	t, err := time.Parse(time.RFC3339Nano, x.text(name))
	if year := t.UTC().Year(); err != nil || year < 1970 || year > 9999 {
		return metav1.MicroTime{}
	}
	return metav1.NewMicroTime(t.UTC().Truncate(time.Microsecond))
}

func (x extensions) generation() (Generation, error) {
	text := x.text(extResourceVersion)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("extension resourceversion %q: want a generation, a whole number from 0", text)
	}
	return Generation(n), nil
}

func (x extensions) deletionTimestamp() (*metav1.Time, error) {
	text := x.text(extDeletionTimestamp)
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !isJSONTime(t) {
		return nil, fmt.Errorf("extension deletiontimestamp %q: want an RFC 3339 time", text)
	}
	return &metav1.Time{Time: t}, nil
}
