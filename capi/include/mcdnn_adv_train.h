#include "mcdnn.h"
