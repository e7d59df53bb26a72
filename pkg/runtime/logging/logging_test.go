package logging_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/workwire/workwire/pkg/runtime/logging"
	"github.com/workwire/workwire/test/kit"
)

func TestFlagsAndValidate(t *testing.T) {
	o := logging.NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	if faults := o.Validate(); len(faults) > 0 {
		t.Error(faults)
	}
	kit.NoError(t, fs.Parse([]string{"--log-format=xml", "-v", "11"}))
	faults := o.Validate()
	if len(faults) != 2 || !strings.Contains(faults[0].Error(), "--log-format") || !strings.Contains(faults[1].Error(), "--v must be 0 to 10, got 11") {
		t.Errorf("faults %v", faults)
	}
}

func TestVerbosityIsSlogsLevel(t *testing.T) {
	for _, c := range []struct {
		verbosity  int
		debug, all bool
	}{{0, false, false}, {3, false, false}, {4, true, false}, {10, true, true}} {
		o := logging.Options{Format: logging.Text, Verbosity: c.verbosity}
		logger := o.Logger(&bytes.Buffer{})
		if !logger.Enabled(t.Context(), slog.LevelInfo) || logger.Enabled(t.Context(), slog.LevelDebug) != c.debug ||
			logger.Enabled(t.Context(), slog.Level(-10)) != c.all {
			t.Errorf("verbosity %d enables the wrong levels", c.verbosity)
		}
	}
}

func TestSetKlog(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	o := logging.Options{Format: logging.JSON, Verbosity: 2}
	o.SetKlog(o.Logger(&out))
	klog.V(2).InfoS("seen", "work", "w")
	klog.V(3).InfoS("not seen")
	klog.Flush()
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	if line["msg"] != "seen" || line["work"] != "w" {
		t.Errorf("line %v", line)
	}
}

func TestErrorsHaveNoValues(t *testing.T) {
	for _, format := range []string{logging.Text, logging.JSON} {
		var out bytes.Buffer
		o := logging.Options{Format: format}
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", field.ErrorList{field.Invalid(field.NewPath("data", "a"), "hunter2", "field is immutable")})
		o.Logger(&out).With("error", err).Warn("failed", "again", fmt.Errorf("apply: %w", err))
		if text := out.String(); strings.Contains(text, "hunter2") || strings.Count(text, "data.a: Invalid value: field is immutable") != 2 {
			t.Errorf("the line is %s", text)
		}
	}
}
