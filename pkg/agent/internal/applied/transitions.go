package applied

import (
	"encoding/json"
	"errors"
	"fmt"
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
	// maxTransitions is the maximum size of the text in bytes. It must fit into one object together
	// with the resources of the work.
	maxTransitions = 256 * 1024
	// maxConditions is the maximum number of conditions in a text. Manifests with equal conditions
	// share them, so a short text could otherwise use much memory.
	maxConditions = 100_000
	// maxMessage is the maximum length in bytes of a stored message.
	maxMessage = 256
	// rulePrefix is the prefix of the reasons that condition rules set. Such a condition cannot be
	// computed again once the object is gone.
	rulePrefix = "ConditionRule"
)

// EncodeTransitions returns the text for [Status].Transitions: what an agent has to know of a
// work's status after a restart. For every condition of the work and of its manifests it contains
// type, status and transition time in seconds and, if a condition rule has set it, reason and
// message, cut at 256 bytes. It returns "" if there are no conditions. The text does not depend on
// the order of the manifests; of manifests with the same identity, only the first counts.
//
// previous is the current text, or "". It is returned if only transition times of
// StatusFeedbackSynced differ, because these change with every feedback value and must not cause a
// write each time. Messages are omitted if the text would exceed 256 KiB. It is an error if the
// text is too long even so.
func EncodeTransitions(status *workv1.ManifestWorkStatus, previous string) (string, error) {
	current := snapshotOf(status)
	last, err := parseTransitions(previous)
	known := err == nil && previous != ""
	if known && current.same(last) {
		return previous, nil
	}
	text, err := current.encode()
	if err == nil && len(text) <= maxTransitions {
		return text, nil
	}
	current.removeMessages()
	if known && current.same(last) {
		return previous, nil
	}
	if text, err = current.encode(); err != nil {
		return "", fmt.Errorf("encode the conditions of %d manifests: %w", len(current.manifests), err)
	}
	if len(text) > maxTransitions {
		return "", fmt.Errorf("encode the conditions of %d manifests: their %d bytes exceed %d: split the work",
			len(current.manifests), len(text), maxTransitions)
	}
	return text, nil
}

// DecodeTransitions reverses EncodeTransitions. The conditions of the result have type, status,
// transition time, reason and message only; the manifests are sorted by identity and have no
// ordinals. "" results in an empty status. Texts that EncodeTransitions cannot return are an error.
func DecodeTransitions(text string) (*workv1.ManifestWorkStatus, error) {
	decoded, err := parseTransitions(text)
	if err != nil {
		return nil, fmt.Errorf("decode transitions: %w", err)
	}
	status := &workv1.ManifestWorkStatus{Conditions: toConditions(decoded.work)}
	for _, e := range decoded.manifests {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests,
			workv1.ManifestCondition{ResourceMeta: e.meta, Conditions: toConditions(e.conditions)})
	}
	return status, nil
}

// snapshot holds the conditions of a status.
type snapshot struct {
	work      []transition
	manifests []manifestSnapshot // sorted by meta, without duplicates
}

// manifestSnapshot holds the conditions of a manifest. meta has no ordinal.
type manifestSnapshot struct {
	meta       workv1.ManifestResourceMeta
	conditions []transition
}

// transition is a condition. As JSON it is the list of type, status and time and, if a rule has set
// the condition, reason and message.
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
	if t.time != formatTime(metav1.NewTime(at)) {
		return errors.New("a time must be UTC in whole seconds")
	}
	return nil
}

// formatTime returns a time in RFC 3339, or "" if it is unset or its year has not four digits.
func formatTime(at metav1.Time) string {
	utc := at.UTC()
	if at.IsZero() || utc.Year() < 0 || utc.Year() > 9999 {
		return ""
	}
	return utc.Format(time.RFC3339)
}

func snapshotOf(status *workv1.ManifestWorkStatus) snapshot {
	if status == nil {
		return snapshot{}
	}
	r := snapshot{work: toTransitions(status.Conditions)}
	known := make(map[workv1.ManifestResourceMeta]struct{}, len(status.ResourceStatus.Manifests))
	for i := range status.ResourceStatus.Manifests {
		e := &status.ResourceStatus.Manifests[i]
		meta := e.ResourceMeta
		meta.Ordinal = 0
		if _, double := known[meta]; double {
			continue
		}
		known[meta] = struct{}{}
		r.manifests = append(r.manifests, manifestSnapshot{meta: meta, conditions: toTransitions(e.Conditions)})
	}
	slices.SortFunc(r.manifests, func(a, b manifestSnapshot) int { return compareMeta(a.meta, b.meta) })
	return r
}

func toTransitions(conditions []metav1.Condition) []transition {
	list := make([]transition, 0, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		t := transition{kind: c.Type, status: string(c.Status), time: formatTime(c.LastTransitionTime)}
		if strings.HasPrefix(c.Reason, rulePrefix) {
			t.reason, t.message = c.Reason, cut(c.Message)
		}
		list = append(list, t)
	}
	return list
}

func toConditions(transitions []transition) []metav1.Condition {
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

// cut truncates a message to maxMessage bytes at the end of a rune.
func cut(message string) string {
	// JSON text must be UTF-8.
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// same reports whether two snapshots differ only in transition times of StatusFeedbackSynced.
func (s snapshot) same(other snapshot) bool {
	alike := func(a, b transition) bool {
		if a.kind == workv1.ManifestStatusFeedbackSynced {
			a.time, b.time = "", ""
		}
		return a == b
	}
	return slices.Equal(s.work, other.work) && slices.EqualFunc(s.manifests, other.manifests, func(a, b manifestSnapshot) bool {
		return a.meta == b.meta && slices.EqualFunc(a.conditions, b.conditions, alike)
	})
}

func (s snapshot) removeMessages() {
	for i := range s.work {
		s.work[i].message = ""
	}
	for _, e := range s.manifests {
		for i := range e.conditions {
			e.conditions[i].message = ""
		}
	}
}
