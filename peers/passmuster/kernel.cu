// The one-shot all-reduce of examples/foreign, as if it were another project's: what a template needs to be instantiated for would follow here.
#include <one_shot_by_value/kernel.cu>
