package works

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// The head of a work is what is read often: metadata, deleteOption, conditions and delivery. Its
// encoding lasts as long as the process. A list is its length plus 1, or 0 for nil, and then its
// elements; a time is its Unix time plus an offset, or 0 for none.

// rare is the part of a head that few works have, as JSON.
type rare struct {
	metav1.TypeMeta `json:",inline"`
	Meta            metav1.ObjectMeta    `json:"m"`
	DeleteOption    *workv1.DeleteOption `json:"d,omitempty"`
}

// rareOf returns what is rare of a work, and whether there is anything.
func rareOf(work *workv1.ManifestWork) (rare, bool) {
	r := rare{TypeMeta: work.TypeMeta, DeleteOption: work.Spec.DeleteOption, Meta: metav1.ObjectMeta{
		GenerateName: work.GenerateName, DeletionGracePeriodSeconds: work.DeletionGracePeriodSeconds,
		OwnerReferences: work.OwnerReferences,
	}}
	return r, work.TypeMeta != (metav1.TypeMeta{}) || r.DeleteOption != nil || r.Meta.GenerateName != "" ||
		r.Meta.DeletionGracePeriodSeconds != nil || r.Meta.OwnerReferences != nil
}

// appendHead appends the head of work to data. It returns false for a work that [readHead] would
// return otherwise: one with times that JSON cannot have been decoded to.
func appendHead(data []byte, work *workv1.ManifestWork) ([]byte, bool) {
	w := headWriter{data: data}
	w.number(work.Generation)
	w.time(work.CreationTimestamp.Time, time.Second)
	w.optionalTime(work.DeletionTimestamp)
	w.texts(work.Labels)
	w.texts(work.Annotations)
	w.length(len(work.Finalizers), work.Finalizers == nil)
	for _, f := range work.Finalizers {
		w.common(f)
	}
	w.length(len(work.Status.Conditions), work.Status.Conditions == nil)
	for i := range work.Status.Conditions {
		c := &work.Status.Conditions[i]
		w.common(c.Type)
		w.common(string(c.Status))
		w.number(c.ObservedGeneration)
		w.time(c.LastTransitionTime.Time, time.Second)
		w.common(c.Reason)
		w.common(c.Message)
	}
	w.number(work.Status.ObservedGeneration)
	d := work.Status.Delivery
	w.length(0, d == nil)
	if d != nil {
		w.number(d.Generation)
		for _, at := range deliveryTimes(d) {
			w.optionalMicroTime(*at)
		}
	}
	if r, some := rareOf(work); some {
		text, err := json.Marshal(r)
		w.failed = w.failed || err != nil
		w.data = append(w.data, text...)
	}
	return w.data, !w.failed && work.ManagedFields == nil
}

func deliveryTimes(d *workv1.DeliveryStatus) []**metav1.MicroTime {
	return []**metav1.MicroTime{&d.AcceptedTime, &d.PublishedTime, &d.AcknowledgedTime, &d.ReceivedTime, &d.AppliedTime, &d.ReadyTime}
}

// readHead sets in work what [appendHead] has written.
func readHead(data string, work *workv1.ManifestWork) {
	r := headReader{data: data}
	work.Generation = r.number()
	work.CreationTimestamp.Time = r.time(time.Second)
	work.DeletionTimestamp = r.optionalTime()
	work.Labels, work.Annotations = r.texts(), r.texts()
	if n := r.length(); n >= 0 {
		work.Finalizers = make([]string, n)
		for i := range work.Finalizers {
			work.Finalizers[i] = r.common()
		}
	}
	if n := r.length(); n >= 0 {
		work.Status.Conditions = make([]metav1.Condition, n)
		for i := range work.Status.Conditions {
			c := &work.Status.Conditions[i]
			c.Type, c.Status = r.common(), metav1.ConditionStatus(r.common())
			c.ObservedGeneration = r.number()
			c.LastTransitionTime.Time = r.time(time.Second)
			c.Reason, c.Message = r.common(), r.common()
		}
	}
	work.Status.ObservedGeneration = r.number()
	if r.length() >= 0 {
		d := &workv1.DeliveryStatus{Generation: r.number()}
		for _, at := range deliveryTimes(d) {
			*at = r.optionalMicroTime()
		}
		work.Status.Delivery = d
	}
	if r.data == "" {
		return
	}
	var seldom rare
	if err := json.Unmarshal([]byte(r.data), &seldom); err != nil {
		panic(fmt.Sprintf("works: read the head of a work: %v", err)) // memory is corrupt
	}
	work.TypeMeta, work.Spec.DeleteOption = seldom.TypeMeta, seldom.DeleteOption
	work.GenerateName, work.OwnerReferences = seldom.Meta.GenerateName, seldom.Meta.OwnerReferences
	work.DeletionGracePeriodSeconds = seldom.Meta.DeletionGracePeriodSeconds
}

// headWriter writes a head. failed says that something cannot be written.
type headWriter struct {
	data   []byte
	failed bool
}

func (w *headWriter) number(n int64) { w.data = binary.AppendVarint(w.data, n) }

func (w *headWriter) length(n int, none bool) {
	if none {
		n = -1
	}
	w.number(int64(n))
}

func (w *headWriter) text(s string) {
	w.number(int64(len(s)))
	w.data = append(w.data, s...)
}

// common writes a string that many works have: a number in place of it, if [known] has room for it.
func (w *headWriter) common(s string) {
	if n, ok := known.number(s); ok {
		w.number(int64(-1 - n))
		return
	}
	w.text(s)
}

func (w *headWriter) texts(m map[string]string) {
	w.length(len(m), m == nil)
	for key, value := range m {
		w.common(key)
		w.text(value)
	}
}

// time writes t, which is in units since 1970 and in the zone of this machine, as decoded times are.
func (w *headWriter) time(t time.Time, unit time.Duration) {
	if t.IsZero() {
		w.failed = w.failed || t != (time.Time{})
		w.data = append(w.data, 0)
		return
	}
	w.failed = w.failed || t.Location() != time.Local || t.Nanosecond()%int(unit) != 0
	w.data = append(w.data, 1)
	w.number(t.UnixMicro() / unit.Microseconds())
}

func (w *headWriter) optionalTime(t *metav1.Time) {
	w.length(0, t == nil)
	if t != nil {
		w.time(t.Time, time.Second)
	}
}

func (w *headWriter) optionalMicroTime(t *metav1.MicroTime) {
	w.length(0, t == nil)
	if t != nil {
		w.time(t.Time, time.Microsecond)
	}
}

// headReader reads what headWriter has written.
type headReader struct{ data string }

func (r *headReader) number() int64 {
	var n uint64
	for i := 0; ; i++ {
		b := r.data[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.data = r.data[i+1:]
			return int64(n>>1) ^ -int64(n&1)
		}
	}
}

// length returns -1 for none.
func (r *headReader) length() int { return int(r.number()) }

func (r *headReader) next(n int64) (s string) {
	s, r.data = r.data[:n], r.data[n:]
	return s
}

func (r *headReader) text() string { return r.next(r.number()) }

func (r *headReader) common() string {
	n := r.number()
	if n < 0 {
		return known.text(int(-1 - n))
	}
	return r.next(n)
}

func (r *headReader) texts() map[string]string {
	n := r.length()
	if n < 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		key := r.common()
		m[key] = r.text()
	}
	return m
}

func (r *headReader) time(unit time.Duration) time.Time {
	if r.next(1) == "\x00" {
		return time.Time{}
	}
	return time.UnixMicro(r.number() * unit.Microseconds())
}

func (r *headReader) optionalTime() *metav1.Time {
	if r.length() < 0 {
		return nil
	}
	return &metav1.Time{Time: r.time(time.Second)}
}

func (r *headReader) optionalMicroTime() *metav1.MicroTime {
	if r.length() < 0 {
		return nil
	}
	return &metav1.MicroTime{Time: r.time(time.Microsecond)}
}
