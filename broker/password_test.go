package broker

import (
	"strings"
	"testing"
)

// written is a hash of "tiger" as mosquitto_passwd 2.0.11 writes it.
const written = "$7$101$bKV+jTzVq9yjDtCs$iDC4FSttsWCv5l/ElbxI69vljjpukv7+jlSW0OyP3O/NKqEqm26/iwQyInWHNrfmSsNuIXes4zQwph1KfLhRkw=="

func TestMatches(t *testing.T) {
	password, random, err := RandomPassword()
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := HashPassword("tiger")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		hash, password string
		want           bool
	}{
		{random, password, true},
		{random, password + "x", false},
		{random, "", false},
		{chosen, "tiger", true},
		{chosen, "lion", false},
		{written, "tiger", true},
		{written, "lion", false},
		{"$7$1$$", "", false},
		{"", "", false},
	} {
		if got := matches(test.hash, []byte(test.password)); got != test.want {
			t.Errorf("%q, %q: %v", test.hash, test.password, got)
		}
	}
}

func TestValidateHash(t *testing.T) {
	fields := strings.Split(written, "$")
	with := func(i int, text string) string {
		changed := append([]string{}, fields...)
		changed[i] = text
		return strings.Join(changed, "$")
	}
	for hash, want := range map[string]string{
		written:               "",
		decoyHash:             "",
		with(2, "0"):          "from 1 to 1000000",
		with(2, "1000001"):    "from 1 to 1000000",
		with(2, "many"):       "from 1 to 1000000",
		with(3, ""):           "needs a salt",
		with(3, "*"):          "must be base64",
		with(4, "AAAA"):       "64 bytes",
		written + "$":         "$7$iterations$salt$hash",
		"secret":              "too short",
		"$6$salt$hash$others": "too short",
	} {
		err := validateHash(hash)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", hash, err, want)
		}
	}
}

func FuzzParsePBKDF2(f *testing.F) {
	f.Add(written)
	f.Add("$7$101$$")
	f.Fuzz(func(t *testing.T, hash string) {
		iterations, salt, key, err := parsePBKDF2(hash)
		if err == nil && (iterations < 1 || iterations > maxIterations || len(salt) == 0 || len(key) == 0) {
			t.Errorf("%q: %d, %x, %x", hash, iterations, salt, key)
		}
	})
}
