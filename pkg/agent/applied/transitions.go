package applied

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// plainTransitions is the size in bytes from which transitions are compressed.
	plainTransitions = 4 * 1024
	// maxTransitions bounds their text: with the resources of a work they have to
	// fit in one object.
	maxTransitions = 256 * 1024
	// maxConditions bounds how many conditions a text may stand for: manifests that
	// share theirs cost little text, and much memory.
	maxConditions = 100_000
	// maxMessage is the most bytes that are kept of a message.
	maxMessage = 256
	// rulePrefix begins the reasons of conditions that rules set. What such a
	// condition says can not be had from the object when that is gone.
	rulePrefix = "ConditionRule"
)

// EncodeTransitions gives what a restarted agent has to know of a work's status,
// as text for [Status].Transitions: of every condition of the work and of its
// manifests the type, the status and the transition time, in seconds, and, where
// a condition rule set it, the reason and the message, cut at 256 bytes. Nothing
// to remember gives "". One status gives one text, in whatever order its manifests
// stand; of two manifests with one identity, the first counts.
//
// before is the text in force, or "". It is returned when it says the same but
// for transition times of StatusFeedbackSynced: those move with every change of a
// feedback value, and must not cost a write each. Messages are left out when the
// text would exceed 256 KiB, and it is an error when that does not help.
func EncodeTransitions(status *workv1.ManifestWorkStatus, before string) (string, error) {
	now := recall(status)
	then, err := parseTransitions(before)
	known := err == nil && before != ""
	if known && now.same(then) {
		return before, nil
	}
	text, err := now.text()
	if err == nil && len(text) <= maxTransitions {
		return text, nil
	}
	now.dropMessages()
	if known && now.same(then) {
		return before, nil
	}
	if text, err = now.text(); err != nil {
		return "", fmt.Errorf("remember the conditions of %d manifests: %w", len(now.entries), err)
	}
	if len(text) > maxTransitions {
		return "", fmt.Errorf("remember the conditions of %d manifests: their %d bytes exceed %d: split the work",
			len(now.entries), len(text), maxTransitions)
	}
	return text, nil
}

// DecodeTransitions reads what [EncodeTransitions] gave: a status with conditions
// that have type, status, transition time, reason and message and nothing else,
// and with manifests in the order of their identity, without ordinals. "" gives
// an empty status. What EncodeTransitions could not have given is an error.
func DecodeTransitions(text string) (*workv1.ManifestWorkStatus, error) {
	decoded, err := parseTransitions(text)
	if err != nil {
		return nil, fmt.Errorf("read the recorded transitions: %w", err)
	}
	status := &workv1.ManifestWorkStatus{Conditions: conditionsOf(decoded.work)}
	for _, e := range decoded.entries {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests,
			workv1.ManifestCondition{ResourceMeta: e.meta, Conditions: conditionsOf(e.conditions)})
	}
	return status, nil
}

// recollection is what is remembered of a status.
type recollection struct {
	work    []transition
	entries []remembered // sorted by meta, each once
}

// remembered is what is remembered of a manifest; meta has no ordinal.
type remembered struct {
	meta       workv1.ManifestResourceMeta
	conditions []transition
}

// transition is a condition: type, status, time, and with rules reason and
// message. As JSON it is a list of these texts.
type transition struct{ kind, status, time, reason, message string }

func (t transition) MarshalJSON() ([]byte, error) {
	texts := []string{t.kind, t.status, t.time}
	if t.reason != "" || t.message != "" {
		texts = append(texts, t.reason, t.message)
	}
	return json.Marshal(texts)
}

func (t *transition) UnmarshalJSON(data []byte) error {
	var texts []string
	if err := json.Unmarshal(data, &texts); err != nil {
		return err
	}
	switch {
	case len(texts) == 5 && strings.HasPrefix(texts[3], rulePrefix) && len(texts[4]) <= maxMessage:
		t.reason, t.message = texts[3], texts[4]
	case len(texts) != 3:
		return errors.New("a condition must be type, status and time, or with a rule's reason and message")
	}
	t.kind, t.status, t.time = texts[0], texts[1], texts[2]
	if t.time == "" {
		return nil
	}
	at, err := time.Parse(time.RFC3339, t.time)
	if err != nil {
		return err
	}
	if t.time != stamp(metav1.NewTime(at)) {
		return errors.New("a time must be UTC in whole seconds")
	}
	return nil
}

// stamp gives a time as text; "" when it is unset, or beyond what the text can
// say.
func stamp(at metav1.Time) string {
	utc := at.UTC()
	if at.IsZero() || utc.Year() < 0 || utc.Year() > 9999 {
		return ""
	}
	return utc.Format(time.RFC3339)
}

func recall(status *workv1.ManifestWorkStatus) recollection {
	if status == nil {
		return recollection{}
	}
	r := recollection{work: transitionsOf(status.Conditions)}
	known := make(map[workv1.ManifestResourceMeta]struct{}, len(status.ResourceStatus.Manifests))
	for i := range status.ResourceStatus.Manifests {
		e := &status.ResourceStatus.Manifests[i]
		meta := e.ResourceMeta
		meta.Ordinal = 0
		if _, double := known[meta]; double {
			continue
		}
		known[meta] = struct{}{}
		r.entries = append(r.entries, remembered{meta: meta, conditions: transitionsOf(e.Conditions)})
	}
	slices.SortFunc(r.entries, func(a, b remembered) int { return compareMetas(a.meta, b.meta) })
	return r
}

func transitionsOf(conditions []metav1.Condition) []transition {
	list := make([]transition, 0, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		t := transition{kind: c.Type, status: string(c.Status), time: stamp(c.LastTransitionTime)}
		if strings.HasPrefix(c.Reason, rulePrefix) {
			t.reason, t.message = c.Reason, cut(c.Message)
		}
		list = append(list, t)
	}
	return list
}

func conditionsOf(transitions []transition) []metav1.Condition {
	if len(transitions) == 0 {
		return nil
	}
	conditions := make([]metav1.Condition, len(transitions))
	for i, t := range transitions {
		conditions[i] = metav1.Condition{Type: t.kind, Status: metav1.ConditionStatus(t.status), Reason: t.reason, Message: t.message}
		if at, err := time.Parse(time.RFC3339, t.time); err == nil { // else it is unset
			conditions[i].LastTransitionTime = metav1.NewTime(at)
		}
	}
	return conditions
}

// cut shortens a message to what is kept of it, at the end of a rune.
func cut(message string) string {
	// JSON can not hold what is no UTF-8.
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for end > 0 && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}

// same reports whether two recollections differ in nothing but transition times
// of StatusFeedbackSynced.
func (r recollection) same(other recollection) bool {
	alike := func(a, b transition) bool {
		if a.kind == workv1.ManifestStatusFeedbackSynced {
			a.time, b.time = "", ""
		}
		return a == b
	}
	return slices.Equal(r.work, other.work) && slices.EqualFunc(r.entries, other.entries, func(a, b remembered) bool {
		return a.meta == b.meta && slices.EqualFunc(a.conditions, b.conditions, alike)
	})
}

func (r recollection) dropMessages() {
	for i := range r.work {
		r.work[i].message = ""
	}
	for _, e := range r.entries {
		for i := range e.conditions {
			e.conditions[i].message = ""
		}
	}
}

// layout is the JSON of a recollection. Manifests that have the same conditions,
// as most of a work do, share them.
type layout struct {
	Work      []transition `json:"work,omitempty"`
	Manifests []group      `json:"manifests,omitempty"`
}

type group struct {
	Conditions []transition `json:"conditions,omitempty"`
	Kinds      []ofKind     `json:"kinds"`
}

// ofKind are the manifests of a kind by namespace.
type ofKind struct {
	Kind  [4]string           `json:"kind"` // group, version, kind, resource
	Names map[string][]string `json:"names"`
}

func (r recollection) text() (string, error) {
	out := layout{Work: r.work}
	total := len(r.work)
	places := map[string]int{}
	for _, e := range r.entries {
		total += len(e.conditions)
		key, err := json.Marshal(e.conditions)
		if err != nil {
			return "", err
		}
		at, ok := places[string(key)]
		if !ok {
			at = len(out.Manifests)
			places[string(key)] = at
			out.Manifests = append(out.Manifests, group{Conditions: e.conditions})
		}
		out.Manifests[at].add(e.meta)
	}
	if len(out.Work) == 0 && len(out.Manifests) == 0 {
		return "", nil
	}
	if total > maxConditions {
		return "", fmt.Errorf("%d conditions are more than %d", total, maxConditions)
	}
	plain, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	return pack(plain, plainTransitions)
}

// add puts in a manifest. They come sorted, so that those of a kind follow each
// other.
func (g *group) add(meta workv1.ManifestResourceMeta) {
	kind := [4]string{meta.Group, meta.Version, meta.Kind, meta.Resource}
	last := len(g.Kinds) - 1
	if last < 0 || g.Kinds[last].Kind != kind {
		g.Kinds = append(g.Kinds, ofKind{Kind: kind, Names: map[string][]string{}})
		last++
	}
	names := g.Kinds[last].Names
	names[meta.Namespace] = append(names[meta.Namespace], meta.Name)
}

func parseTransitions(text string) (recollection, error) {
	if text == "" {
		return recollection{}, nil
	}
	plain, err := unpack(text)
	if err != nil {
		return recollection{}, err
	}
	var in layout
	if err := json.Unmarshal(plain, &in); err != nil {
		return recollection{}, err
	}
	r := recollection{work: in.Work}
	total := len(in.Work)
	for _, g := range in.Manifests {
		for _, of := range g.Kinds {
			for _, namespace := range slices.Sorted(maps.Keys(of.Names)) {
				names := of.Names[namespace]
				if total += len(names) * len(g.Conditions); total > maxConditions {
					return recollection{}, fmt.Errorf("they are more than %d conditions", maxConditions)
				}
				for _, name := range names {
					r.entries = append(r.entries, remembered{conditions: g.Conditions, meta: workv1.ManifestResourceMeta{
						Group: of.Kind[0], Version: of.Kind[1], Kind: of.Kind[2], Resource: of.Kind[3], Namespace: namespace, Name: name,
					}})
				}
			}
		}
	}
	slices.SortFunc(r.entries, func(a, b remembered) int { return compareMetas(a.meta, b.meta) })
	for i := 1; i < len(r.entries); i++ {
		if r.entries[i-1].meta == r.entries[i].meta {
			return recollection{}, fmt.Errorf("%s %s/%s has two entries",
				r.entries[i].meta.Kind, r.entries[i].meta.Namespace, r.entries[i].meta.Name)
		}
	}
	return r, nil
}

func compareMetas(a, b workv1.ManifestResourceMeta) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}
