package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// DecodeError is returned by Decode. It identifies the work if possible, so that an agent can
// report the failure in the work's status (docs/protocol.md, Refused specs).
type DecodeError struct {
	// Type is the event's `type` attribute.
	Type string
	// Spec is the spec without its Bundle if the event is a spec whose identity could be decoded,
	// otherwise nil.
	Spec *Spec
	// Question is the dry run without its Bundle if the event is one whose data is sealed, otherwise nil.
	Question *DryRun
	// Err is the cause. It does not contain the event's data.
	Err error
}

// Error returns the event's type, the work and the cause.
func (e *DecodeError) Error() string {
	if e.Spec != nil {
		return fmt.Sprintf("decode %s of work %s: %v", e.Type, e.Spec.UID, e.Err)
	}
	return fmt.Sprintf("decode event of type %q: %v", e.Type, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// ErrUnknownDataType is wrapped by the errors of Decode for events that are not about works or
// agents. Such events must be ignored.
var ErrUnknownDataType = errors.New("not an event about works")

// Decode returns the message in e. Its errors are *[DecodeError]; those for events of other data
// types wrap [ErrUnknownDataType].
func Decode(e cloudevents.Event) (Message, error) {
	fail := func(err error) (Message, error) {
		return nil, &DecodeError{Type: e.Type(), Err: err}
	}
	t, err := ParseEventType(e.Type())
	if err != nil {
		return fail(err)
	}
	x := extensions(e.Extensions())
	if err := checkTexts(e.Source(), x); err != nil {
		return fail(err)
	}
	var m Message
	switch {
	case t == (EventType{Data: Agents, Subresource: SubresourceStatus, Action: Update}):
		m, err = decodePresence(e, x)
	case t == (EventType{Data: Digests, Subresource: SubresourceStatus, Action: Update}):
		m, err = decodeDigest(e, x)
	case t == (EventType{Data: StatusDeltas, Subresource: SubresourceStatus, Action: Update}):
		m, err = decodeStatusDelta(e, x)
	case t == (EventType{Data: SpecDeltas, Subresource: SubresourceSpec, Action: Update}):
		return decodeSpecDelta(e, x)
	case t == (EventType{Data: Sources, Subresource: SubresourceSpec, Action: Update}):
		m, err = decodeInstance(e, x)
	case t == (EventType{Data: DryRuns, Subresource: SubresourceSpec, Action: Create}):
		if m, err = decodeDryRun(e, x); errors.Is(err, ErrSealed) {
			return nil, err
		}
	case t == (EventType{Data: DryRuns, Subresource: SubresourceStatus, Action: Create}):
		m, err = decodeDryRunAnswer(e, x)
	case t.Data != ManifestBundles:
		err = fmt.Errorf("data type %s: %w", t.Data, ErrUnknownDataType)
	case t.Action == ResyncRequest && t.Subresource == SubresourceSpec:
		m, err = decodeSpecResync(e, x)
	case t.Action == ResyncRequest:
		m, err = decodeStatusResync(e, x)
	case t.Subresource == SubresourceSpec:
		return decodeSpec(e, x, t.Action)
	case t.Action == Delete:
		err = errors.New("a status can not be deleted")
	default:
		m, err = decodeStatus(e, x, t.Action)
	}
	if err != nil {
		return fail(err)
	}
	return m, nil
}

func decodeSpec(e cloudevents.Event, x extensions, action Action) (Message, error) {
	s := &Spec{Action: action}
	if err := s.decodeExtensions(e, x); err != nil {
		return nil, s.failure(e, err)
	}
	if s.IsDeletion() {
		return s, nil
	}
	if action == Delete {
		return nil, s.failure(e, errors.New("a deletion needs extension deletiontimestamp"))
	}
	if IsSealed(e.Data()) {
		return nil, s.failure(e, ErrSealed)
	}
	var bundle Bundle
	if err := decodeData(e, &bundle, "ManifestBundle"); err != nil {
		return nil, s.failure(e, err)
	}
	if err := bundle.Validate(); err != nil {
		return nil, s.failure(e, err)
	}
	s.Bundle = &bundle
	return s, nil
}

// failure returns the error of Decode for e, an event whose extensions are those of s as far as they
// could be decoded.
func (s *Spec) failure(e cloudevents.Event, err error) error {
	failed := &DecodeError{Type: e.Type(), Err: err}
	if s.UID != "" && s.Source != "" && s.Cluster != "" {
		failed.Spec = s
	}
	return failed
}

// decodeExtensions sets s from the attributes and extensions of e, except its Action and Bundle.
func (s *Spec) decodeExtensions(e cloudevents.Event, x extensions) error {
	s.Source, s.Trace = SourceID(e.Source()), x.trace()
	// Decode the identity first: the agent needs it to report other errors.
	s.UID = k8stypes.UID(x.text(extResourceID))
	s.Cluster = ClusterName(x.text(extClusterName))
	bare := metav1.ObjectMeta{Name: string(s.UID), Namespace: string(s.Cluster), UID: s.UID}
	s.Meta, s.NoMetadata = bare, true
	if s.UID == "" || s.Cluster == "" || s.Source == "" {
		return errors.New("resourceid, clustername and source are required")
	}
	var err error
	if s.Generation, err = x.generation(); err != nil {
		return err
	}
	var meta metav1.ObjectMeta
	switch found, err := x.metadata(&meta); {
	case err != nil:
		return err
	case found:
		s.Meta, s.NoMetadata = meta, false
	}
	if s.Meta.Name == "" {
		s.Meta.Name = bare.Name
	}
	s.Meta.UID, s.Meta.Generation = s.UID, int64(s.Generation)
	if s.SourceIdentity, err = x.shaped(extSourceIdentity, memoryIdentityShape); err != nil {
		return err
	}
	s.Accepts = ParseAccepts(x.text(extAccepts))
	if s.DeletionTimestamp, err = x.deletionTimestamp(); err != nil || s.IsDeletion() {
		return err
	}
	if s.ContentHash, err = x.shaped(extContentHash, contentHashShape); err != nil {
		return err
	}
	s.Authoritative = x.flag(extAuthoritative)
	return nil
}

func decodeStatus(e cloudevents.Event, x extensions, action Action) (Message, error) {
	s := &Status{Action: action}
	if err := s.decodeExtensions(e, x); err != nil {
		return nil, err
	}
	var data statusData
	if len(e.Data()) > 0 {
		if err := decodeData(e, &data, "status"); err != nil {
			return nil, err
		}
	}
	s.Status = workv1.ManifestWorkStatus{
		Conditions:     data.Conditions,
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: data.ResourceStatus},
	}
	return s, checkStatus(&s.Status)
}

// decodeExtensions sets s from the attributes and extensions of e, except its Action and Status.
func (s *Status) decodeExtensions(e cloudevents.Event, x extensions) error {
	s.UID = k8stypes.UID(x.text(extResourceID))
	s.Source = SourceID(x.text(extOriginalSource))
	s.Cluster = ClusterName(x.text(extClusterName))
	s.Agent = e.Source()
	s.Hash = x.text(extStatusHash)
	s.Trace = x.trace()
	if s.UID == "" || s.Cluster == "" {
		return errors.New("resourceid and clustername are required")
	}
	var err error
	if s.Generation, err = x.generation(); err != nil {
		return err
	}
	if text := x.text(extSequenceID); text != "" {
		if s.Sequence, err = ParseSequenceID(text); err != nil {
			return err
		}
	}
	s.Accepts = ParseAccepts(x.text(extAccepts))
	if s.Session, err = x.shaped(extSession, sessionShape); err != nil {
		return err
	}
	s.Times = Times{Received: x.microTime(extReceivedTime), Applied: x.microTime(extAppliedTime), Ready: x.microTime(extReadyTime)}
	s.Meta = metav1.ObjectMeta{Name: string(s.UID), Namespace: string(s.Cluster), UID: s.UID}
	if _, err := x.metadata(&s.Meta); err != nil {
		return err
	}
	s.Meta.UID = s.UID
	return nil
}

func decodeSpecResync(e cloudevents.Event, x extensions) (Message, error) {
	var data specResyncData
	if err := decodeData(e, &data, "list of resource versions"); err != nil {
		return nil, err
	}
	for i := range data.ResourceVersions {
		if err := checkVersion(i, data.ResourceVersions[i].UID, data.ResourceVersions[i].ContentHash); err != nil {
			return nil, err
		}
	}
	r := &SpecResync{
		Agent:    e.Source(),
		Cluster:  ClusterName(x.text(extClusterName)),
		Source:   SourceID(x.text(extOriginalSource)),
		Versions: data.ResourceVersions,
		Partial:  data.Partial,
		Accepts:  ParseAccepts(x.text(extAccepts)),
		Expires:  x.expiry(),
	}
	if r.Cluster == "" {
		return nil, errors.New("clustername is required")
	}
	if r.Partial && len(r.Versions) == 0 {
		return nil, errors.New("a partial list is empty")
	}
	return r, nil
}

func decodeStatusResync(e cloudevents.Event, x extensions) (Message, error) {
	var data statusResyncData
	if err := decodeData(e, &data, "list of status hashes"); err != nil {
		return nil, err
	}
	if err := data.Buckets.validate(); err != nil {
		return nil, err
	}
	for i := range data.StatusHashes {
		if err := checkVersion(i, data.StatusHashes[i].UID, data.StatusHashes[i].Hash, data.StatusHashes[i].ContentHash); err != nil {
			return nil, err
		}
	}
	identity, err := x.shaped(extSourceIdentity, memoryIdentityShape)
	if err != nil {
		return nil, err
	}
	return &StatusResync{
		Source:         SourceID(e.Source()),
		Cluster:        ClusterName(x.text(extClusterName)),
		Hashes:         data.StatusHashes,
		Buckets:        data.Buckets,
		SourceIdentity: identity,
		Accepts:        ParseAccepts(x.text(extAccepts)),
		Reply:          data.Reply,
	}, nil
}

func decodePresence(e cloudevents.Event, x extensions) (Message, error) {
	var data presenceData
	if err := decodeData(e, &data, "presence"); err != nil {
		return nil, err
	}
	p := &Presence{
		Agent: e.Source(), Cluster: ClusterName(x.text(extClusterName)), Source: SourceID(x.text(extOriginalSource)),
		Session: data.Session, Present: data.Present,
	}
	if p.Cluster == "" || p.Session == "" {
		return nil, errors.New("clustername and session are required")
	}
	if !sessionShape.MatchString(p.Session) {
		return nil, fmt.Errorf("session %.80q: want %s", p.Session, sessionShape)
	}
	return p, nil
}

func decodeDigest(e cloudevents.Event, x extensions) (Message, error) {
	var data digestData
	if err := decodeData(e, &data, "digest"); err != nil {
		return nil, err
	}
	d := &Digest{Agent: e.Source(), Cluster: ClusterName(x.text(extClusterName)), Source: SourceID(x.text(extOriginalSource)), Expires: x.expiry()}
	if d.Cluster == "" || d.Source == "" {
		return nil, errors.New("clustername and originalsource are required")
	}
	var err error
	d.Buckets, err = data.buckets()
	return d, err
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
	if year := t.UTC().Year(); err != nil || year < 0 || year > 9999 {
		return nil, fmt.Errorf("extension deletiontimestamp %q: want an RFC 3339 time", text)
	}
	return &metav1.Time{Time: t}, nil
}
