package writebench

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
)

// object is an object that is written again and again: its name, and what the last answer said of it.
type object struct {
	name   string
	answer baseline.Answer
}

// request is a kind of write.
type request struct {
	row    string
	method string
	what   string // content type of a patch
	plain  bool   // of a ConfigMap, else of a ManifestWork
	status bool   // of its status
	large  bool   // of a work whose status has a megabyte
	// body is the body of the turn-th such write of o.
	body func(o object, turn int) []byte
}

// creates make what the other requests write. Those without a row only make it so.
var creates = []request{
	{row: "create ConfigMap", method: "POST", plain: true, body: configMap},
	{row: "create ManifestWork", method: "POST", body: work},
	{method: "PATCH", what: baseline.JSONPatch, status: true, body: statusJSONPatch},
	{method: "POST", large: true, body: work},
	{method: "PATCH", what: baseline.JSONPatch, status: true, large: true, body: largeJSONPatch},
}

// requests are the other kinds of writes, in the order of the table.
var requests = []request{
	{row: "patch ConfigMap", method: "PATCH", what: baseline.MergePatch, plain: true, body: configMap},
	{row: "status, JSON patch", method: "PATCH", what: baseline.JSONPatch, status: true, body: statusJSONPatch},
	{row: "status, merge patch", method: "PATCH", what: baseline.MergePatch, status: true, body: statusMergePatch},
	{row: "status, PUT", method: "PUT", status: true, body: statusWhole},
	{row: "status, PUT without spec", method: "PUT", status: true, body: statusOnly},
	{row: "spec, JSON patch", method: "PATCH", what: baseline.JSONPatch, body: specJSONPatch},
	{row: "spec, merge patch", method: "PATCH", what: baseline.MergePatch, body: specMergePatch},
	{row: "spec, PUT", method: "PUT", body: work},
	{row: "status of 1 MB, JSON patch", method: "PATCH", what: baseline.JSONPatch, status: true, large: true, body: largeJSONPatch},
	{row: "status of 1 MB, PUT without spec", method: "PUT", status: true, large: true, body: largeOnly},
}

// path is the path of a write of o.
func (r request) path(o object) string {
	path := "/apis/work.open-cluster-management.io/v1/namespaces/" + namespace + "/manifestworks"
	if r.plain {
		path = "/api/v1/namespaces/" + namespace + "/configmaps"
	}
	if r.method != "POST" {
		path += "/" + o.name
	}
	if r.status {
		path += "/status"
	}
	return path
}

// text is a kilobyte that differs from turn to turn.
func text(turn int) string { return strings.Repeat(fmt.Sprintf("line %8d\n", turn), 1024/14) }

func configMap(o object, turn int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"value":%q}}`, o.name, text(turn))
}

func spec(turn int) string {
	manifest := func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"object-%d","namespace":"default"},"data":{"value":%q}}`, i, text(turn))
	}
	return fmt.Sprintf(`{"workload":{"manifests":[%s,%s]}}`, manifest(0), manifest(1))
}

func metadata(o object) string {
	text := fmt.Sprintf(`"name":%q`, o.name)
	if known := o.answer.Metadata; known.UID != "" {
		text += fmt.Sprintf(`,"namespace":%q,"uid":%q,"resourceVersion":%q`, namespace, known.UID, known.ResourceVersion)
	}
	return "{" + text + "}"
}

const typed = `"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork"`

func work(o object, turn int) []byte {
	return fmt.Appendf(nil, `{%s,"metadata":%s,"spec":%s}`, typed, metadata(o), spec(turn))
}

func status(turn int) []byte {
	text, _ := json.Marshal(events.Well(int64(turn + 1))) // plain fields
	return text
}

// largeStatus has as many conditions with the longest message as fit into a message of the protocol.
func largeStatus(turn int) []byte {
	s := events.Well(int64(turn + 1))
	for i := range 30 {
		s.Conditions = append(s.Conditions, metav1.Condition{Type: fmt.Sprintf("Large%d", i), Status: metav1.ConditionTrue, Reason: "Large",
			LastTransitionTime: metav1.Now(), Message: strings.Repeat("m", 32_000)})
	}
	s.Conditions[0] = metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: fmt.Sprintf("Turn%d", turn), LastTransitionTime: metav1.Now()}
	text, _ := json.Marshal(s) // plain fields
	return text
}

func tested(o object, path string, value []byte) []byte {
	return fmt.Appendf(nil, `[{"op":"test","path":"/metadata/uid","value":%q},{"op":"add","path":%q,"value":%s}]`, o.answer.Metadata.UID, path, value)
}

func withStatus(o object, status []byte) []byte {
	return fmt.Appendf(nil, `{%s,"metadata":%s,"status":%s}`, typed, metadata(o), status)
}

func statusJSONPatch(o object, turn int) []byte { return tested(o, "/status", status(turn)) }

func statusMergePatch(_ object, turn int) []byte {
	return fmt.Appendf(nil, `{"status":%s}`, status(turn))
}

func statusWhole(o object, turn int) []byte {
	return fmt.Appendf(nil, `{%s,"metadata":%s,"spec":%s,"status":%s}`, typed, metadata(o), spec(turn), status(turn))
}

func statusOnly(o object, turn int) []byte { return withStatus(o, status(turn)) }

func largeJSONPatch(o object, turn int) []byte { return tested(o, "/status", largeStatus(turn)) }

func largeOnly(o object, turn int) []byte { return withStatus(o, largeStatus(turn)) }

func specJSONPatch(o object, turn int) []byte { return tested(o, "/spec", []byte(spec(turn))) }

func specMergePatch(_ object, turn int) []byte { return fmt.Appendf(nil, `{"spec":%s}`, spec(turn)) }
