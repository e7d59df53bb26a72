package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/runtime/yamlfile"
	"github.com/workwire/workwire/pkg/wire"
)

// Load reads and validates the file at path. Its error names the key of every invalid value, and
// what to do; unknown keys are errors. Load also reads and validates the files that the
// configuration names, whose paths are relative to the working directory.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("transport configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("transport configuration %s:\n%w", path, err)
	}
	return c, nil
}

// Parse is [Load] for the content of a file.
func Parse(data []byte) (Config, error) {
	asJSON, err := yamlfile.ToJSON(data)
	if err != nil {
		return Config{}, fmt.Errorf("is no YAML: %w", err)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(asJSON, &values); err != nil {
		return Config{}, errors.New(`is no mapping of keys to values, such as "brokerHost: broker.example.com:1883"`)
	}
	var c Config
	fields := c.fields()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		set, known := fields[key]
		if !known {
			errs = append(errs, unknownKeyError("", key, slices.Sorted(maps.Keys(fields))))
			continue
		}
		if string(values[key]) == "null" {
			continue // a key without a value is ignored
		}
		if err := set(values[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	errs = append(errs, c.Validate(), c.Topics.Validate())
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return c, nil
}

// unknownKeyError returns the error for a key that is not among known.
func unknownKeyError(within, key string, known []string) error {
	for _, k := range known {
		if strings.EqualFold(k, key) {
			return fmt.Errorf("%s%s: unknown key: did you mean %s%s?", within, key, within, k)
		}
	}
	return fmt.Errorf("%s%s: unknown key: remove it; known are %s", within, key, strings.Join(known, ", "))
}

// fields returns for each key the function that decodes its value into c.
func (c *Config) fields() map[string]func(json.RawMessage) error {
	return map[string]func(json.RawMessage) error{
		"brokerHost":        addressesField(&c.BrokerHost),
		"hubName":           stringField(&c.HubName),
		"username":          stringField(&c.Username),
		"password":          stringField(&c.Password),
		"passwordFile":      stringField(&c.PasswordFile),
		"keepAlive":         secondsField(&c.KeepAlive),
		"dialTimeout":       durationField(&c.DialTimeout),
		"pubQoS":            qosField(&c.PubQoS),
		"subQoS":            qosField(&c.SubQoS),
		"tls":               tlsField(&c.TLSRequired),
		"topics":            topicsField(&c.Topics),
		"caFile":            stringField(&c.CA.File),
		"caData":            base64Field(&c.CA.Data),
		"clientCertFile":    stringField(&c.ClientCert.File),
		"clientCertData":    base64Field(&c.ClientCert.Data),
		"clientKeyFile":     stringField(&c.ClientKey.File),
		"clientKeyData":     base64Field(&c.ClientKey.Data),
		"sessionExpiry":     durationField(&c.SessionExpiry),
		"receiveMaximum":    numberField(&c.ReceiveMaximum, 1),
		"maximumPacketSize": numberField(&c.MaximumPacketSize, 1024),
	}
}

func stringField(to *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, to); err != nil {
			return errors.New("is no text: put it in quotes")
		}
		return nil
	}
}

func numberField[T uint16 | uint32 | byte](to *T, least T) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if err := json.Unmarshal(raw, to); err != nil || *to < least {
			*to = 0
			return fmt.Errorf("is no whole number from %d to %d", least, ^T(0))
		}
		return nil
	}
}

func qosField(to **byte) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value byte
		if err := json.Unmarshal(raw, &value); err != nil || value > 2 {
			return errors.New("is no quality of service: use 0, 1 or 2")
		}
		*to = &value
		return nil
	}
}

func secondsField(to *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value uint16
		if err := numberField(&value, 1)(raw); err != nil {
			return fmt.Errorf("%w: it counts seconds", err)
		}
		*to = time.Duration(value) * time.Second
		return nil
	}
}

// tlsField decodes the only value of key tls.
func tlsField(to *bool) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if string(raw) != `"required"` {
			return errors.New(`is not "required": use that, or remove the key`)
		}
		*to = true
		return nil
	}
}

func durationField(to *time.Duration) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return errors.New(`is no duration: give a number with its unit, such as "60s" or "24h"`)
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf(`%q is no duration above zero: give a number with its unit, such as "60s" or "24h"`, value)
		}
		*to = d
		return nil
	}
}

// base64Field decodes base64. Its errors must not contain the value, which may be a private key.
func base64Field(to *[]byte) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return errors.New("is no text: give PEM encoded in base64")
		}
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil {
			return errors.New("is no base64: give PEM encoded in base64, as `base64 -w0 FILE` prints it")
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return errors.New("is empty: give PEM encoded in base64, or remove the key")
		}
		*to = data
		return nil
	}
}

func topicsField(to *wire.Topics) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var values map[string]json.RawMessage
		if err := json.Unmarshal(raw, &values); err != nil {
			return errors.New("is no mapping of sourceEvents, agentEvents, sourceBroadcast and agentBroadcast to topic patterns")
		}
		fields := map[string]func(json.RawMessage) error{
			"sourceEvents":    stringField(&to.SourceEvents),
			"agentEvents":     stringField(&to.AgentEvents),
			"sourceBroadcast": stringField(&to.SourceBroadcast),
			"agentBroadcast":  stringField(&to.AgentBroadcast),
		}
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if set, known := fields[key]; !known {
				errs = append(errs, unknownKeyError("topics.", key, slices.Sorted(maps.Keys(fields))))
			} else if err := set(values[key]); err != nil {
				errs = append(errs, fmt.Errorf("topics.%s %w", key, err))
			}
		}
		return errors.Join(errs...)
	}
}
