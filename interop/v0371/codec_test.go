package v0371

import (
	"testing"

	"github.com/culvert-proxy/culvert/interop/suite"
)

func TestVersion(t *testing.T)           { suite.Version(t, "v0.37.1") }
func TestLostBytes(t *testing.T)         { suite.LostBytes(t) }
func TestCodecGolden(t *testing.T)       { suite.CodecGolden(t) }
func TestCodecDifferential(t *testing.T) { suite.CodecDifferential(t) }
func FuzzCodec(f *testing.F)             { suite.CodecFuzz(f) }
